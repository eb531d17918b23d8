// A call of an operator on caches, by the text of an example, and what it is judged by.
#pragma once
#include "ops/schema/example.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace decode_test {

// With emulated Hopper beside what this machine runs.
inline std::vector<Target> all_targets() {
  std::vector<Target> targets = test_targets();
  if (targets.size() > 1) targets.push_back(Target::emulated_sm90());
  return targets;
}

struct Call {
  const OperatorSchema& schema;
  OptionValues options;
  Tensors inputs;

  Call(const std::string& op, const std::string& text) : schema(find_schema(op)) {
    const ExampleCall example = ExampleCall::parse(schema, text);
    options = example.options, inputs = example.inputs(schema, 5);
  }
  Tensors on(Target target) const { return call_by_name(schema, inputs, options, target); }
  void expect_right(const std::vector<Target>& targets = all_targets()) const {
    for (const Target target : targets)
      EXPECT_EQ(faults_of(judge_call(schema, inputs, options, on(target))), "") << target.name();
  }
};

}  // namespace decode_test
}  // namespace tegula::ops
