// The printed CUDA text, run thread by thread on the CPU: every operator's examples against their references.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/registry.hpp"

namespace tegula::emulation {
namespace {

struct CaseName {
  std::string op, example;
};

std::vector<CaseName> all_cases() {
  std::vector<CaseName> result;
  for (const ops::Operator& op : ops::operators())
    for (const ops::Case& c : op.check_cases) result.push_back({op.name, c.name});
  return result;
}

// The tensor cores of the two targets multiply 16 bits in different ways, and nothing else differs.
std::vector<Target> targets_for(const ops::Tensors& inputs) {
  const bool has_16_bits = std::any_of(inputs.begin(), inputs.end(),
                                       [](const auto& input) { return input.second.dtype().bits() == 16; });
  if (has_16_bits) return {Target::emulated(), Target::emulated_sm90()};
  return {Target::emulated()};
}

class EmulatedOperator : public ::testing::TestWithParam<CaseName> {};

TEST_P(EmulatedOperator, AgreesWithItsReference) {
  const ops::Operator& op = ops::find_operator(GetParam().op);
  for (const ops::Case& example : op.check_cases) {
    if (example.name != GetParam().example) continue;
    const ops::Options options = ops::Options::parse(op, example.options);
    const ops::Tensors inputs = example.inputs(7);
    const ops::Tensors expected = op.reference(inputs, options);
    const auto tolerance = op.tolerance(inputs, options);
    for (const Target& target : targets_for(inputs)) {
      const ops::Tensors outputs = op.run(inputs, options, target);
      for (const ops::OutputInfo& output : op.outputs) {
        const auto difference = first_difference(outputs.at(output.name), expected.at(output.name),
                                                 tolerance.absolute, tolerance.relative);
        EXPECT_FALSE(difference) << (target == Target::emulated() ? "" : "sm_90 ") << output.name << ": "
                                 << *difference;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, EmulatedOperator, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.op + "_" + info.param.example; });

}  // namespace
}  // namespace tegula::emulation
