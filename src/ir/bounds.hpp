// The range of values of an integer expression, from what is known about its variables.
#pragma once
#include <unordered_map>

#include "ir/affine.hpp"

namespace tegula::ir {

// low <= value <= high; the least and the greatest 64-bit integer stand for no limit.
struct Interval {
  std::int64_t low = INT64_MIN;
  std::int64_t high = INT64_MAX;

  bool is_point() const { return low == high; }
  bool contains(std::int64_t value) const { return low <= value && value <= high; }
  bool contains(const Interval& other) const { return low <= other.low && other.high <= high; }
};
Interval intersection(const Interval& a, const Interval& b);
// All values of an integer type or of bool; no limit for floats.
Interval values_of(DType type);

// Whether integers that leave their type are an error of the program, which no conclusion needs to consider,
// or get another value. An executor that leaves out a check because of a bound must take the second view: it
// touches no memory that is not the program's, whatever the program does.
enum class Overflow : std::uint8_t { is_error, wraps };

// What holds at a place of the program. Variables never change, so a fact stays true wherever the variables
// it speaks of are in scope; a nested place copies the facts and adds its own.
class Facts {
 public:
  explicit Facts(Overflow overflow = Overflow::is_error) : wraps_(overflow == Overflow::wraps) {}
  bool wraps() const { return wraps_; }

  void add_range(const VariablePtr& variable, const Interval& range);
  void add_multiple(const VariablePtr& variable, std::int64_t multiple);
  // The condition has this truth.
  void assume(const Expr& condition, bool truth = true);
  // begin <= index < end.
  void add_index(const VariablePtr& index, const Expr& begin, const Expr& end);
  // The variable is this value.
  void define(const VariablePtr& variable, const Expr& value);

  // The bounds stated for a variable or an atom, without further conclusions.
  Interval stated(const Expr& atom) const;
  std::int64_t multiple_of(const VariablePtr& variable) const;
  // Sums that are zero or more.
  const std::vector<Affine>& not_negative() const { return not_negative_; }

 private:
  void add_not_negative(const Affine& a);
  void add_below_quotient(const Affine& index, const Affine& end);
  void add_stated(const Expr& atom, const Interval& range);

  bool wraps_;
  std::unordered_map<VariablePtr, Interval> ranges_;
  std::unordered_map<VariablePtr, std::int64_t> multiples_;
  std::vector<std::pair<Expr, Interval>> atoms_;
  std::vector<Affine> not_negative_;
};

// Contains every value that the expression can have where the facts hold: invalid values and overflow apart,
// or with what they give, as the facts say.
Interval bounds(const Expr& e, const Facts& facts);
Interval bounds(const Affine& a, const Facts& facts);
// A number that divides every value of the sum; 0 if it is zero.
std::int64_t divisor(const Affine& a, const Facts& facts);

}  // namespace tegula::ir
