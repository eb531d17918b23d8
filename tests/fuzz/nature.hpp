// What is known about a value before the program runs: enough to tell whether all executors must agree on
// its bits. Programs are built so that they must, wherever the language takes no liberty; see README.md.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "ir/stmt.hpp"

namespace tegula::fuzz {

struct Nature {
  // The range of integers and booleans.
  std::int64_t low = 0, high = 0;
  // A float is a finite multiple of 2^step, of magnitude `bound` at most. Sums and products of such numbers
  // are exact as long as they fit, in any order and fused or not.
  bool dyadic = false;
  int step = 0;
  double bound = 0;
  // Maybe the rounded result of a multiplication, which a compiler may fuse with an addition.
  bool product = false;
  // A zero may have either sign.
  bool loose_zero = false;
  // Relative errors; 0: every executor has the same bits (of NaN only that it is one). Some of the values may
  // be of the small type `rounded` already, so that a store to it adds nothing to their error.
  double error = 0;          // of the others
  double rounded_error = 0;  // of those
  TypeCode rounded = TypeCode::f64;

  bool is_exact() const { return worst_error() == 0; }
  double worst_error() const { return error > rounded_error ? error : rounded_error; }
};

Nature integers(std::int64_t low, std::int64_t high);
Nature dyadic(int step, double bound);
// Any value of a compute or storage type; of floats, the same bits everywhere.
Nature anything(DType type);
// What places of a type hold that take results of elementary functions.
Nature inexact(DType type);
bool contains_zero(const Nature& nature);

// The nature of an operation's result, and what else may happen.
struct Result {
  Nature nature;
  bool may_overflow = false;  // an i32 or i64, which the interpreter refuses
  bool may_be_invalid = false;
  bool diverges = false;  // executors may disagree beyond any error that is accounted for
};
Result result_of(const ir::ExprNode& node, std::span<const Nature> args);
Nature of_constant(const ir::ExprNode& node);

// The nature of a value that is one or the other.
Nature join(const Nature& a, const Nature& b, DType type);
// After rounding or wrapping to `type`.
Nature stored(const Nature& nature, DType type);
// Whether every value that `nature` allows is one that `contract` allows, in a place of this type.
bool fits(const Nature& nature, const Nature& contract, DType type);
std::string describe(const Nature& nature, DType type);

}  // namespace tegula::fuzz
