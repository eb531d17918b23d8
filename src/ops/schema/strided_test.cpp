// How tensors of example calls lie, lengths of packed sequences, and what those cost.
#include "ops/schema/strided.hpp"

#include "ops/schema/bound.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/registered.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/test_environment.hpp"

namespace tegula::ops {
namespace {

TEST(Strided, TensorsLieAsTheirNamesSay) {
  const Tensor values = Tensor::random_normal({2, 3, 4, 5}, f32, 1);
  const std::vector<Shape> expected{{60, 20, 5, 1}, {120, 40, 5, 1}, {156, 52, 13, 1},
                                    {72, 24, 6, 1}, {60, 5, 15, 1},  {60, 20, 1, 4}};
  ASSERT_EQ(expected.size(), strides_names.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto strides = static_cast<Strides>(i);
    const Tensor laid = laid_out(strides, values, Device::cpu());
    EXPECT_EQ(laid.strides(), expected[i]) << strides_names[i];
    EXPECT_TRUE(equal(laid, values)) << strides_names[i];
    EXPECT_EQ(described_as(strides, f32, values.shape()).strides, expected[i]) << strides_names[i];
  }
}

TEST(Strided, WhatHasTooFewDimsIsPlain) {
  EXPECT_EQ(described_as(Strides::odd, f32, {7}).strides, (Shape{1}));
  EXPECT_EQ(described_as(Strides::swapped, f32, {7, 3}).strides, (Shape{3, 1}));
  EXPECT_EQ(described_as(Strides::sliced, f32, {}).strides, Shape{});
}

TEST(Strided, BoundariesHaveTheLengthsOfTheirName) {
  const auto of = [](Packing packing, std::int64_t count, std::int64_t tokens) {
    return boundaries(packing, count, tokens, 1).values<std::int32_t>();
  };
  using Cuts = std::vector<std::int32_t>;
  EXPECT_EQ(of(Packing::even, 5, 10), (Cuts{0, 2, 5, 7, 10}));
  EXPECT_EQ(of(Packing::rising, 5, 100), (Cuts{0, 10, 30, 60, 100}));
  EXPECT_EQ(of(Packing::one_long, 5, 60), (Cuts{0, 30, 40, 50, 60}));
  EXPECT_EQ(of(Packing::one_long, 2, 60), (Cuts{0, 60}));
  EXPECT_EQ(of(Packing::empty, 5, 60), (Cuts{0, 30, 30, 60, 60}));
  EXPECT_EQ(of(Packing::empty, 4, 60), (Cuts{0, 30, 30, 60}));
  EXPECT_EQ(of(Packing::random, 1, 60).size(), 1U);
}

TEST(Strided, CallsOfStridedTensorsHaveTheSameResults) {
  const OperatorSchema& schema = find_schema("attention");
  const std::string call = "batch=2 queries=33 keys=45 kv_heads=2 group=2 d=16 d_v=8 causal ";
  const auto result = [&](const std::string& words) {
    const ExampleCall example = ExampleCall::parse(schema, call + words);
    return call_by_name(schema, example.inputs(schema, 3), example.options).at("out");
  };
  const Tensor plain = result("");
  for (const char* words : {"strides=sliced", "strides=padded", "strides=odd", "strides=swapped"})
    EXPECT_TRUE(equal(result(words), plain)) << words;
}

// Rows off 16 bytes of packed sequences, and where keys are split.
TEST(Strided, RowsThatAreCopiedFirst) {
  const auto expect_right = [](const char* name, const std::string& words) {
    const OperatorSchema& schema = find_schema(name);
    const ExampleCall example = ExampleCall::parse(schema, words);
    const Tensors inputs = example.inputs(schema, 5);
    const Tensors results = call_by_name(schema, inputs, example.options, Target::emulated_sm90());
    EXPECT_EQ(faults_of(judge_call(schema, inputs, example.options, results)), "") << words;
  };
  const std::string packed =
      "bf16 strides=odd queries=140 keys=200 sequences=4 cu_seqlens_q cu_seqlens_k kv_heads=2 group=2 d=64 "
      "d_v=32 causal sinks:f32";
  expect_right("attention", packed);
  expect_right("attention_backward", packed);
  expect_right("attention",
               "bf16 strides=odd queries=3 keys=1500 kv_heads=2 group=4 d=64 d_v=64 splits=3 causal");
}

// Of packed sequences, what each of them costs.
TEST(Strided, OperationsOfPackedSequencesAreThoseOfEach) {
  const OperatorSchema& schema = find_schema("attention");
  const auto operations = [&](const std::string& words) {
    const ExampleCall example = ExampleCall::parse(schema, "kv_heads=2 group=2 d=16 d_v=8 causal " + words);
    return CheckedCall(schema, example.inputs(schema, 3), example.options).bound.flops();
  };
  const std::string packed = "queries=60 keys=60 cu_seqlens_q cu_seqlens_k ";
  const auto one = [&](int tokens) {
    return operations("batch=1 queries=" + std::to_string(tokens) + " keys=" + std::to_string(tokens));
  };
  EXPECT_EQ(operations(packed + "sequences=4 packing=one_long"), one(30) + 3 * one(10));
  EXPECT_EQ(operations(packed + "sequences=4 packing=empty"), 2 * one(30));
  EXPECT_EQ(operations(packed + "sequences=3 packing=even"), 3 * one(20));
}

}  // namespace
}  // namespace tegula::ops
