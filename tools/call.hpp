// The command-line description of one call of an operator, and the call itself.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/registry.hpp"
#include "tools/cli/cli.hpp"

namespace tegula::tool {

// As given, in text.
struct CallTexts {
  std::string op, example, target = "auto";
  std::vector<std::string> inputs, random, options;

  bool says_nothing() const { return example.empty() && inputs.empty() && random.empty() && options.empty(); }
};

struct Call {
  const ops::Operator& op;
  std::string name;  // of the example, or `given`
  ops::Tensors inputs;
  ops::Options options;
  Target target;
};

void add_target_option(cli::Command& command, std::string& target);
// The operator, its example, inputs and options.
void add_inputs(cli::Command& command, CallTexts& texts);
// The same and the target.
void add_call_options(cli::Command& command, CallTexts& texts);

Target target_named(const std::string& name);
// A DeviceError where the target's GPU or its driver is missing: asked before tensors are made, which may
// take long.
void expect_device(Target target);
// `name=value`; without `=` an ArgumentError that names the option.
std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text);
// An example of the operator, be it for checks or for measurements; null if there is none of that name.
const ops::Case* find_example(const ops::Operator& op, const std::string& name);

// Whether the tensors of a call have values. Kernels are listed without: inputs may be gigabytes.
enum class Values { made, left_out };

// The inputs and options of the example, if one is named, replaced by what is given.
Call resolve(const CallTexts& texts, Values values = Values::made);

}  // namespace tegula::tool
