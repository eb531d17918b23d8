// The printed CUDA text, run thread by thread on the CPU: every operator's examples against their references.
#include <gtest/gtest.h>

#include "ops/testing/covering.hpp"
#include "tegula/error.hpp"

namespace tegula::emulation {
namespace emulated_test {

struct CaseName {
  std::string op, example;
};

std::vector<CaseName> all_cases() {
  std::vector<CaseName> result;
  for (const ops::Operator& op : ops::operators())
    for (const ops::Case& c : op.check_cases) result.push_back({op.name, c.name});
  return result;
}

void expect_right(const ops::Operator& op, const ops::Case& example, Target target) {
  SCOPED_TRACE(example.name);
  const ops::Options options = ops::Options::parse(op, example.options);
  const ops::Tensors inputs = example.inputs(7);
  EXPECT_EQ(faults_of(op.judge(inputs, options, run_from_host(op, inputs, options, target))), "");
}

class EmulatedOperator : public ::testing::TestWithParam<CaseName> {};

TEST_P(EmulatedOperator, AgreesWithItsReference) {
  const ops::Operator& op = ops::find_operator(GetParam().op);
  for (const ops::Case& example : op.check_cases)
    if (example.name == GetParam().example) expect_right(op, example, Target::emulated_sm90());
}

// Calls on this target have the plans of CPUs, whose tiles have 64 rows of f32. Those of 512 features exceed
// the shared memory of a block and may be refused; no others.
void expect_right_or_too_wide(const ops::Operator& op, const ops::Case& example) {
  try {
    expect_right(op, example, Target::emulated());
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find("the shared tiles of a block take"), std::string::npos)
        << example.name << ": " << error.what();
    EXPECT_GE(example.described().at("q").size(-1), 512) << example.name << ": " << error.what();
  }
}

// The tensor cores of the two targets multiply 16 bits in different ways, and nothing else differs.
class EmulatedAmpere : public ::testing::TestWithParam<std::string> {};

TEST_P(EmulatedAmpere, AgreesWithItsReference) {
  const ops::Operator& op = ops::find_operator(GetParam());
  for (const ops::Case* example : ops::covering_cases(op)) expect_right_or_too_wide(op, *example);
}

INSTANTIATE_TEST_SUITE_P(Operators, EmulatedOperator, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.op + "_" + info.param.example; });
INSTANTIATE_TEST_SUITE_P(Operators, EmulatedAmpere, ::testing::ValuesIn(ops::operator_names()),
                         [](const auto& info) { return info.param; });

}  // namespace emulated_test
}  // namespace tegula::emulation
