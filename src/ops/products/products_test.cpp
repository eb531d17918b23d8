// What examples of tables cannot say of products: how operands lie, groups without rows, packed weights.
#include <gtest/gtest.h>

#include "ops/schema/judge.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace products_test {

void expect_right(const char* op, const Tensors& inputs, const OptionValues& options) {
  for (const Target target : test_targets()) {
    SCOPED_TRACE(std::string(op) + " " + std::string(target.name()));
    const OperatorSchema& schema = find_schema(op);
    EXPECT_EQ(faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))),
              "");
  }
}

// Of the same shape, with columns side by side.
Tensor turned(const Tensor& matrix) { return matrix.transpose(-2, -1).contiguous().transpose(-2, -1); }
Tensor scales(const Shape& shape, std::uint64_t seed) {
  return Tensor::random_integers(shape, i32, seed, 1, 9).to(f32);
}

TEST(ScaledGemm, TakesOperandsInAnyOrder) {
  const Tensor a = Tensor::random_normal({37, 200}, e4m3, 1), b = Tensor::random_normal({80, 200}, e4m3, 2);
  const Tensor of_a = scales({37, 2}, 3), of_b = scales({80, 2}, 4);
  const OptionValues rows{{"rows_b", std::int64_t{1}}};
  expect_right("scaled_gemm", {{"a", turned(a)}, {"b", b}, {"scale_a", turned(of_a)}, {"scale_b", of_b}},
               rows);
  expect_right("scaled_gemm", {{"a", a}, {"b", turned(b)}, {"scale_a", of_a}, {"scale_b", turned(of_b)}},
               rows);
  expect_right("scaled_gemm",
               {{"a", turned(a)}, {"b", turned(b)}, {"scale_a", turned(of_a)}, {"scale_b", turned(of_b)}},
               rows);
}

TEST(GroupedGemm, HasGroupsWithoutRows) {
  const Tensor a = Tensor::random_normal({70, 24}, f32, 1), b = Tensor::random_normal({5, 24, 40}, f32, 2);
  const Tensor dout = Tensor::random_normal({70, 40}, f32, 3), c = Tensor::random_normal({5, 24, 40}, f32, 4);
  for (const std::vector<std::int32_t>& at :
       {std::vector<std::int32_t>{0, 0, 66, 66, 70, 70}, {0, 0, 0, 70, 70, 70}}) {
    expect_right("grouped_gemm", {{"a", a}, {"b", turned(b)}, {"offsets", Tensor::from(at)}}, {});
    expect_right("grouped_gemm_weights", {{"a", a}, {"dout", dout}, {"offsets", Tensor::from(at)}, {"c", c}},
                 {});
  }
}

TEST(GroupedGemm, RefusesOffsetsThatAreNone) {
  const Tensor a = Tensor::random_normal({7, 4}, f32, 1), b = Tensor::random_normal({2, 4, 4}, f32, 2);
  const auto refusal_of = [&](const std::vector<std::int32_t>& at, int most) {
    return refusal([&] { grouped_gemm(a, b, {.offsets = Tensor::from(at), .max_rows = most}); });
  };
  EXPECT_NE(refusal_of({0, 8, 7}, 0).find("never fall and end with 7"), std::string::npos);
  EXPECT_NE(refusal_of({0, 3, 6}, 0).find("never fall and end with 7"), std::string::npos);
  EXPECT_NE(refusal_of({0, 3, 7}, 3).find("'max_rows': expected at least 4"), std::string::npos);
}

TEST(QuantisedGemm, TakesWeightsInBothOrders) {
  const Tensor a = Tensor::random_normal({9, 192}, bf16, 1),
               b = Tensor::random_integers({40, 96}, i32, 2, 0, 256).to(u8);
  const Tensor of_b = scales({3, 40}, 3);
  for (const Target target : test_targets()) {
    QuantisedGemm options{.group = 64, .target = target};
    const Tensor plain = quantised_gemm(a, b, of_b, options);
    options.packed = true;
    EXPECT_TRUE(equal(quantised_gemm(a, packed_weights(b), turned(of_b), options), plain)) << target.name();
  }
  EXPECT_NE(refusal([&] {
              packed_weights(Tensor::zeros({3, 33}, u8));
            }).find("multiple of 64"),
            std::string::npos);
}

}  // namespace products_test
}  // namespace tegula::ops
