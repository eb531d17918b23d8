// Scalar expressions: pure functions of variables and constants.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/dtype.hpp"
#include "tegula/error.hpp"

namespace tegula::ir {

enum class VariableKind : std::uint8_t {
  dim,         // extent known at the call
  scalar,      // number passed at the call
  processors,  // number of processors of the device
  index,       // of a grid or a loop
  let,         // value computed once
  mutable_,    // changes; read only by a Let that is this variable
};

// Identity is the address: two variables of one name are different.
struct Variable {
  std::string name;
  DType type;
  VariableKind kind;
  Loc at;
};
using VariablePtr = std::shared_ptr<const Variable>;

// Known when the kernel is launched.
inline bool is_host(VariableKind kind) { return kind <= VariableKind::processors; }

// clang-format off
enum class Op : std::uint8_t {
  constant, variable,
  // integers and floats
  add, sub, mul, div, mod, floordiv, floormod, ceildiv, min, max, neg, abs,
  // integers
  bit_and, bit_or, bit_xor, bit_not, popcount, mul_high, shl, shr,
  // to bool
  eq, ne, lt, le, gt, ge, logical_and, logical_or, logical_not, isnan,
  // select(condition, a, b); conversions
  select, cast, bitcast,
  // floats
  fma, exp, exp2, log, log2, sqrt, rsqrt, rcp, tanh, sin, cos, erf, pow, round, floor, ceil,
};
// clang-format on
inline constexpr int op_count = static_cast<int>(Op::ceil) + 1;

// `add`, `exp2`, …
std::string_view name_of(Op op);
// `+` for operators written between their operands, empty otherwise.
std::string_view symbol_of(Op op);
int arity_of(Op op);

struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;

struct ExprNode {
  Op op;
  DType type;  // of the value; of a cast: the type rounded to, which may be a small one
  int size;    // nodes of the expression written as a tree, saturating
  Loc at;
  std::vector<Expr> args;
  VariablePtr variable;      // of a variable
  std::int64_t integer = 0;  // of a constant that is not floating (bool: 0 or 1; u32: 0 … 2^32−1)
  double real = 0;           // of a floating constant

  // The type in which the value is held.
  DType held() const { return compute_type(type); }
};

Expr constant(DType type, std::int64_t value, const Loc& at = {});
Expr constant(DType type, double value, const Loc& at = {});
inline Expr constant(DType type, int value, const Loc& at = {}) {
  return constant(type, static_cast<std::int64_t>(value), at);
}
Expr int32(std::int64_t value, const Loc& at = {});
Expr truth(bool value, const Loc& at = {});
Expr variable(const VariablePtr& variable, const Loc& at = {});
// A node as given; the arguments have the types that `op` needs.
Expr make(Op op, DType type, std::vector<Expr> args, const Loc& at = {});

bool is_constant(const Expr& e);
bool is_constant(const Expr& e, std::int64_t value);
// The value of an integer constant; anything else is an InternalError.
std::int64_t constant_value(const Expr& e);

// Same structure, variables and constants (bitwise for floats).
bool equal(const Expr& a, const Expr& b);
// As many, each equal to the one at its place.
bool equal(const std::vector<Expr>& a, const std::vector<Expr>& b);

}  // namespace tegula::ir
