// Decides whether a result is right: its error must be at most twice that of the plain computation in its
// type.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

struct ResultError {
  double largest = 0, norm = 0;  // of one element; of all, relative
};
ResultError error_of(const Tensor& result, const Tensor& exact);

// The allowed error of one element, and of all: twice that of `plain`, or a few units of rounding in `type`;
// `times` as much for a result that is a difference of larger sums.
inline constexpr double of_differences = 8;
ResultError allowed_error(const Tensor& exact, const Tensor& plain, DType type, double times = 1);

// Nothing if the result is right: its error is at most twice that of `plain`, or a few units of rounding in
// `type`. Integers are equal. `exact` is the formula's result, `plain` that with every step in `type`.
std::optional<std::string> judge(const Tensor& result, const Tensor& exact, const Tensor& plain, DType type,
                                 double times = 1);

// The verdict on one output: its largest error, the allowed error, and what is wrong, if anything.
struct Verdict {
  std::string output;
  double error = 0, allowed = 0;
  std::string wrong;
  bool right() const { return wrong.empty(); }
};
// One for each output of the formula, and for each result that it does not have. `plain` has the dtypes of
// the results.
std::vector<Verdict> judge_all(const Tensors& results, const Tensors& exact, const Tensors& plain);
// Judges a call of an operator, for commands and tests, on every executor.
std::vector<Verdict> judge_call(const OperatorSchema& schema, const Tensors& inputs,
                                const OptionValues& options, const Tensors& results);
// What is wrong, in lines; empty if all is right.
std::string faults_of(const std::vector<Verdict>& verdicts);

}  // namespace tegula::ops
