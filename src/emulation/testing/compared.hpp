// For tests: a program with roles on the emulated Hopper beside the interpreter.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "codegen/cuda_program.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::emulation {

// The text for Hopper, in which blocks have a producer.
inline std::string text_with_roles(const lang::Kernel& program) {
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  EXPECT_NE(text.find("---- producer"), std::string::npos) << text;
  return text;
}

// `program` takes inputs and one output of f32 and the shape.
inline void expect_as_interpreted(const lang::Kernel& program, const std::vector<Tensor>& inputs,
                                  const Shape& shape, double tolerance,
                                  const std::vector<Target>& targets = {Target::emulated_sm90()}) {
  const auto results = [&](Target target) {
    const Tensor out = Tensor::full(shape, f32, NAN);
    std::vector<Argument> values(inputs.begin(), inputs.end());
    values.emplace_back(out);
    compile(program, target).call_in_order(values);
    return out.values<double>();
  };
  const auto wanted = results(Target::interpreter());
  for (const Target target : targets) {
    const auto got = results(target);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], tolerance) << "element " << i;
  }
}

}  // namespace tegula::emulation
