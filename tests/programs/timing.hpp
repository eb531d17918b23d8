// Programs at sizes of practice, as bench_programs times them on a GPU: what their parameters are given, how
// much work that is, and elements of results by the formula.
#pragma once
#include <map>
#include <optional>

#include "tests/programs/program.hpp"

namespace programs {

// Elements made on the device: normal ones of a deviation, or equally likely ones between two limits.
struct Random {
  Shape shape;
  DType type;
  double deviation = 1;
  std::optional<std::pair<double, double>> limits = {};
  // The last extent of the tensor whose first columns these are; 0: they are a tensor of their own.
  std::int64_t row = 0;
};
inline Random between(Shape shape, DType type, double low, double high) {
  return {std::move(shape), type, 1, std::pair{low, high}};
}
// Written by the program. Results that are not `whole` keep elements that no call writes, or are infinite in
// some by intent.
struct Result {
  Shape shape;
  DType type;
  bool whole = true;
};
using TimedValue = std::variant<Random, Result, Data, double, int>;

struct TimedArgument {
  std::string name;  // of the parameter
  TimedValue value;
};

// The slice of an argument at leading indices: of X[i, j, k] that at {i} is a matrix.
using SliceOf = std::function<Numbers(const std::string& name, const std::vector<std::int64_t>& at)>;

// Elements of a result by the formula.
struct Check {
  std::string result;
  std::function<double(const SliceOf& slice, const std::vector<std::int64_t>& at)> exact;
  double tolerance = 3e-2;  // of the larger of its own magnitude and the mean one
};

struct Timing {
  std::string program;
  std::vector<std::string> forms;  // how their names begin; empty: all that have these parameters
  std::string shape;               // in words
  enum class Unit { operations, bytes } unit;
  double work;  // operations that count, or bytes that have to move
  std::function<std::vector<TimedArgument>()> arguments;
  std::optional<Check> check = {};
  bool forms_agree = true;  // their results are those of the first form
};

std::vector<Timing> linear_timings();
std::vector<Timing> product_timings();
std::vector<Timing> decode_timings();
std::vector<Timing> all_timings();

// A form of a program at one of its sizes.
struct TimedCase {
  Timing timing;
  Form form;

  std::string name() const;  // `program, form, shape`
};
std::vector<TimedCase> timed_cases();

// What the checks of a call say about a form with these arguments, if they refuse it. Nothing is allocated.
std::optional<std::string> refusal(const Timing& timing, const Form& form);

}  // namespace programs
