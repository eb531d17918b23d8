// Attention of e4m3, whose weights are rounded to 8 bits where tiles and calls allow, against its formula.
#include <string>
#include <vector>

#include "ops/attention/attention.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/judge.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::ops {
namespace attention_bytes_test {

constexpr std::chrono::seconds most_time{100};

struct Row {
  const char* call;
  const char* weights;  // as they are multiplied
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.call; }

class AttentionOfBytes : public testing::TestWithParam<Row> {};

TEST_P(AttentionOfBytes, AgreesWithTheFormula) {
  const Watchdog watchdog(GetParam().call, most_time);
  const OperatorSchema& schema = attention_schema();
  const ExampleCall example = ExampleCall::parse(schema, GetParam().call);
  const Tensors inputs = example.inputs(schema, 3);
  for (const Target target : {Target::cpu(), Target::emulated_sm90()}) {
    if (test_targets().size() == 1) GTEST_SKIP() << "there is no compiler";
    SCOPED_TRACE(target.name());
    EXPECT_EQ(faults_of(judge_call(schema, inputs, example.options,
                                   call_by_name(schema, inputs, example.options, target))),
              "");
  }
  const std::string name =
      kernels_by_name(schema, inputs, example.options, Target::emulated_sm90()).front().name();
  EXPECT_NE(name.find(std::string("weights_") + GetParam().weights), std::string::npos) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Table, AttentionOfBytes,
    testing::Values(
        Row{"batch=1 queries=130 keys=257 kv_heads=1 group=1 d=64 d_v=64 e4m3 causal tile_queries=128 "
            "tile_keys=128 q_scale k_scale v_scale",
            "e4m3"},
        Row{"batch=2 queries=40 keys=90 kv_heads=2 group=2 d=128 d_v=24 e4m3 left=40 right=3 softcap=5 "
            "tile_queries=64 tile_keys=64 k_scale",
            "e4m3"},
        Row{"batch=1 queries=70 keys=150 kv_heads=1 group=2 d=96 d_v=72 e4m3 splits=3 tile_queries=64 "
            "tile_keys=32 sinks:f32 layout=bhsd out_dtype=f32",
            "e4m3"},
        Row{"batch=1 queries=200 keys=140 kv_heads=1 group=1 d=64 d_v=64 e4m3 tile_queries=192 tile_keys=64",
            "e4m3"},
        Row{"batch=1 queries=65 keys=20 kv_heads=1 group=1 d=32 d_v=8 e4m3 causal tile_queries=64 "
            "tile_keys=64",
            "e4m3"},
        Row{"batch=1 queries=3 keys=1 kv_heads=1 group=1 d=32 d_v=33 e4m3 tile_queries=64 tile_keys=64",
            "e4m3"},
        Row{"batch=1 queries=70 keys=50 kv_heads=1 group=1 d=32 d_v=32 e4m3 tile_queries=64 tile_keys=48",
            "f16"},
        Row{"sequences=3 queries=90 keys=170 kv_heads=2 group=1 d=32 d_v=24 e4m3 cu_seqlens_q cu_seqlens_k "
            "causal tile_queries=64 tile_keys=64 v_scale",
            "e4m3"},
        Row{"batch=1 queries=20 keys=50 kv_heads=2 group=2 d=40 d_v=20 e4m3 v_scale", "f16"}));

TEST(AttentionOfBytes, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 4, 4, 16}, e4m3), k = Tensor::zeros({1, 6, 2, 16}, e4m3),
               scale = Tensor::full({1, 2}, f32, 1);
  const auto call = [](const Tensor& a, const Tensor& b, const AttentionOptions& options) {
    return [=] { attention(a, b, b, options); };
  };
  expect_refusal(call(q.to(e5m2), k.to(e5m2), {}), "argument 'q': expected dtype f32, f16, bf16 or e4m3");
  expect_refusal(call(q.to(f16), k.to(f16), {.k_scale = scale}), "argument 'k_scale': expected k of 8 bits");
  expect_refusal(call(q.to(f16), k.to(f16), {.out_dtype = f32}),
                 "argument 'out_dtype': expected the dtype of q, unless that is e4m3");
  expect_refusal(call(q, k, {.out_dtype = e4m3}), "argument 'out_dtype': expected f32, f16 or bf16");
  expect_refusal(call(q, k, {.v_scale = Tensor::full({1, 3}, f32, 1)}), "argument 'v_scale': expected");
  const Tensor lse = Tensor::zeros({1, 4, 4}, f32);
  expect_refusal([&] { attention_backward(q, q, k, k, q, lse); }, "expected dtype f32, f16 or bf16");
}

}  // namespace attention_bytes_test
}  // namespace tegula::ops
