// The operators as the command-line tool, the benchmarks and the tests see them.
//
// An operator takes tensors and options by name. Options are text here: `parse` refuses unknown options and
// values of the wrong type, and lists the names and types that exist.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/schema/judge.hpp"
#include "ops/schema/table.hpp"

namespace tegula::ops {

using OptionTexts = std::map<std::string, std::string>;

struct InputInfo {
  std::string name;
  std::string shape;  // in words: "[batch, queries, heads, d]"
  std::vector<DType> dtypes;
  bool required = true;
  std::string meaning;
};

struct OutputInfo {
  std::string name;
  std::string shape;
  std::string dtype;
};

enum class OptionType { boolean, integer, real, choice };
std::string_view name_of(OptionType type);

struct OptionInfo {
  std::string name;
  OptionType type;
  std::string default_text;  // empty: the operator decides
  std::string meaning;
  std::vector<std::string> choices;  // of a choice
};

struct Operator;

// Values of all options of one call.
class Options {
 public:
  static Options parse(const Operator& op, const OptionTexts& texts);

  // Whether the option has a value, given or by default.
  bool has(const std::string& name) const;
  bool boolean(const std::string& name) const { return text(name) == "true"; }
  std::int64_t integer(const std::string& name) const;
  int small_integer(const std::string& name) const;  // an ArgumentError beyond 32 bits
  double real(const std::string& name) const;
  const std::string& text(const std::string& name) const;

 private:
  std::map<std::string, std::string> values_;
};

// Arithmetic and memory traffic of a call at least.
struct Work {
  double flops = 0, bytes = 0;
};

// Example arguments. `inputs` depends on nothing but the seed.
struct Case {
  std::string name;
  OptionTexts options;
  std::function<Tensors(std::uint64_t seed)> inputs;
  // Tensors like those of seed 1, most of them without memory: kernels can be listed of them.
  std::function<Tensors()> described;
};

struct Operator {
  std::string name;
  std::string summary;
  std::vector<InputInfo> inputs;
  std::vector<OutputInfo> outputs;
  std::vector<OptionInfo> options;

  // Inputs that it writes in place are written, and results too.
  std::function<Tensors(const Tensors& inputs, const Options& options, Target target)> run;
  // The same in double precision, by the formula; f64 outputs (integers as `run` gives them).
  std::function<Tensors(const Tensors& inputs, const Options& options)> reference;
  // The kernels that `run` calls for such arguments, and why its plan takes a slower way than others.
  std::function<ListedCall(const Tensors& inputs, const Options& options, Target target)> listed;
  std::function<Work(const Tensors& inputs, const Options& options)> work;
  // Names of the results of such a call: not those outputs that exist under a condition that it does not
  // meet.
  std::function<std::vector<std::string>(const Tensors& inputs, const Options& options)> results;
  // What is right of results, and what is not.
  std::function<std::vector<Verdict>(const Tensors& inputs, const Options& options, const Tensors& results)>
      judge;

  std::vector<Case> check_cases;  // small: seconds on the interpreter, all together
  std::vector<Case> bench_cases;

  std::vector<lang::Kernel> kernels(const Tensors& inputs, const Options& options, Target target) const {
    return listed(inputs, options, target).kernels;
  }
};

const std::vector<Operator>& operators();
// An unknown name is an ArgumentError that lists the names.
const Operator& find_operator(const std::string& name);
Tensors copied_to(Device device, const Tensors& tensors);
// Runs the operator on inputs and for results on the host: for a target of another device they are copied
// there and back.
Tensors run_from_host(const Operator& op, const Tensors& inputs, const Options& options, Target target);
// Unknown, missing or wrong inputs are an ArgumentError; run and listed check this themselves.
void check_inputs(const Operator& op, const Tensors& inputs);

}  // namespace tegula::ops
