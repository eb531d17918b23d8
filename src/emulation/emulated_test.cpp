// The printed CUDA text, run thread by thread on the CPU: every operator's examples against their references.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/registry.hpp"

namespace tegula::emulation {
namespace {

struct CaseName {
  std::string op, example;
  Target target;
};

// What the tensor cores of the two targets multiply in different ways.
bool has_16_bits(const ops::Case& c) {
  const ops::Tensors inputs = c.inputs(7);
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const auto& input) { return input.second.dtype().bits() == 16; });
}

std::vector<CaseName> all_cases() {
  std::vector<CaseName> result;
  for (const ops::Operator& op : ops::operators())
    for (const ops::Case& c : op.check_cases) {
      result.push_back({op.name, c.name, Target::emulated()});
      if (has_16_bits(c)) result.push_back({op.name, c.name, Target::emulated_sm90()});
    }
  return result;
}

class EmulatedOperator : public ::testing::TestWithParam<CaseName> {};

TEST_P(EmulatedOperator, AgreesWithItsReference) {
  const ops::Operator& op = ops::find_operator(GetParam().op);
  for (const ops::Case& example : op.check_cases) {
    if (example.name != GetParam().example) continue;
    const ops::Options options = ops::Options::parse(op, example.options);
    const ops::Tensors inputs = example.inputs(7);
    const ops::Tensors outputs = op.run(inputs, options, GetParam().target);
    const ops::Tensors expected = op.reference(inputs, options);
    const auto tolerance = op.tolerance(inputs, options);
    for (const ops::OutputInfo& output : op.outputs) {
      const auto difference = first_difference(outputs.at(output.name), expected.at(output.name),
                                               tolerance.absolute, tolerance.relative);
      EXPECT_FALSE(difference) << output.name << ": " << *difference;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, EmulatedOperator, ::testing::ValuesIn(all_cases()), [](const auto& info) {
  return info.param.op + "_" + info.param.example + (info.param.target == Target::emulated() ? "" : "_sm90");
});

}  // namespace
}  // namespace tegula::emulation
