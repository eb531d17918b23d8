// How calls by text are refused.
#include "ops/registry.hpp"

#include <gtest/gtest.h>

#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace registry_test {

// The kernels of the benchmarks can be built, and their work counted, without running them.
TEST(Registry, BenchmarksCanBeBuilt) {
  for (const char* name : {"gemm", "topk_blocks"}) {
    const Operator& op = find_operator(name);
    for (const Case& example : op.bench_cases)
      EXPECT_FALSE(
          op.kernels(example.described(), Options::parse(op, example.options), Target::cpu()).empty());
  }
}

TEST(Registry, ExamplesAreDescribed) {
  for (const Operator& op : operators()) {
    const Tensors made = op.check_cases.front().inputs(1), described = op.check_cases.front().described();
    ASSERT_EQ(made.size(), described.size()) << op.name;
    for (const auto& [name, tensor] : described) {
      EXPECT_EQ(tensor.shape(), made.at(name).shape()) << op.name << ' ' << name;
      EXPECT_EQ(tensor.dtype(), made.at(name).dtype()) << op.name << ' ' << name;
    }
  }
}

// A tensor that its declaration alone has made is none.
TEST(Registry, FunctionsNeedTheirTensors) {
  const Tensor a = Tensor::zeros({2, 2}, f32);
  EXPECT_ERROR(ArgumentError, "gemm, argument 'b': expected a tensor, given none", gemm(a, TensorRef()));
  EXPECT_ERROR(ArgumentError, "rms_norm, argument 'x': expected a tensor, given none", rms_norm(TensorRef()));
  EXPECT_ERROR(ArgumentError, "rms_norm_backward, argument 'dout': expected a tensor, given none",
               rms_norm_backward(TensorRef(), a));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ArgumentError& error) { return error.what(); }
  return "not refused";
}

TEST(Registry, RefusesWhatItDoesNotKnow) {
  const Operator& gemm = find_operator("gemm");
  EXPECT_EQ(refusal([] { find_operator("gem"); }).find("there is no operator 'gem'; there are attention, "), 0u);
  EXPECT_NE(refusal([&] {
              Options::parse(gemm, {{"tile", "3"}});
            }).find("gemm has no option 'tile'; it has"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              Options::parse(gemm, {{"tile_m", "x"}});
            }).find("expected a value of type integer"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              Options::parse(gemm, {{"activation", "tanh"}});
            }).find("one of none, relu, gelu, silu"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              Options::parse(gemm, {{"transpose_a", "1"}});
            }).find("true or false"),
            std::string::npos);
  EXPECT_NE(refusal([&] { check_inputs(gemm, {}); }).find("gemm needs the input 'a'"), std::string::npos);
  const Tensor a = Tensor::zeros({2, 2}, f32);
  EXPECT_NE(refusal([&] {
              check_inputs(gemm, {{"a", a}, {"b", a}, {"c", a}});
            }).find("no input 'c'"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              check_inputs(gemm, {{"a", a.to(i32)}, {"b", a}});
            }).find("dtype i32 is not supported"),
            std::string::npos);
}

}  // namespace registry_test
}  // namespace tegula::ops
