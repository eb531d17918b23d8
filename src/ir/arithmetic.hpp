// The arithmetic of every operation on known values. The interpreter and constant folding both use it, so
// they cannot disagree.
#pragma once
#include <functional>
#include <span>

#include "ir/expr.hpp"

namespace tegula::ir {

// A value as an executor holds it: f32, f64, i32, i64, u32 or bool.
struct Value {
  DType type = i32;
  std::int64_t integer = 0;  // of types that are not floating (bool: 0 or 1; u32: 0 … 2^32−1)
  double real = 0;           // of floating types; of f32 always a number that f32 can hold
  bool invalid = false;

  bool truth() const { return integer != 0; }
};

// The number is wrapped, or rounded, to `type`, which is not a small type.
Value integer_value(DType type, std::int64_t number);
Value float_value(DType type, double number);
Value truth_value(bool truth);
Value invalid_value(DType type);

// A cast. To a type of less than 32 bits the value is rounded and held in the compute type; a small float is
// rounded from f32. Nonzero numbers, NaN too, are true.
Value convert(DType to, const Value& value);

// The result of `op`, for a node of type `type`, on operands of the types it needs; constants and variables
// have none. `overflow`, if given, becomes true when an i32 or i64 result had to wrap.
// Integer division by zero is invalid; `round` goes to the nearest integer, ties to even.
Value apply(Op op, DType type, std::span<const Value> args, bool* overflow = nullptr);

// The value of a whole expression; `lookup` knows the variables.
using Lookup = std::function<Value(const VariablePtr&)>;
Value evaluate(const Expr& e, const Lookup& lookup, bool* overflow = nullptr);

// Between constants and values.
Value value_of(const Expr& constant);
Expr constant(const Value& value, const Loc& at);

// Same type and the same bits, or both invalid.
bool identical(const Value& a, const Value& b);

}  // namespace tegula::ir
