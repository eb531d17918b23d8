#include "tegula/ops/gated_delta_rule.hpp"

#include "ops/gated_delta/delta_table.hpp"
#include "ops/gated_delta/delta_tokens.hpp"
#include "ops/gated_delta/formed_rule.hpp"
#include "ops/gated_delta/short_rule.hpp"
#include "ops/linear/maps.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

void run_short_rule(const RuleCall& c, Launch& launch, int rows) {
  FormedRule formed(c, launch);
  formed.normalize();
  ShortRuleKernel kernel{with_all_columns(scan_of(formed.pass)), c.type("beta")};
  kernel.scan.gated = c.has("g"), kernel.scan.of_tile = rows;
  launch_short_rule(c.call(), launch, kernel, short_rule_kernel, rows, formed.q, formed.k);
}

void run_rule(const RuleCall& c, Launch& launch) {
  if (const auto rows = tile_of_short_rule(c.call())) return run_short_rule(c, launch, *rows);
  if (goes_by_token(c.call(), {.head = 68, .call = 20}))
    return run_delta_tokens(c.call(), launch, delta_recurrence(c, false, c->output_final_state));
  FormedRule formed(c, launch);
  formed.normalize();
  formed.run_with_results();
}

void run_rule_backward(const RuleCall& c, Launch& launch) {
  if (tile_of_short_rule(c.call(), "dfinal_state") || !differentiates_by_token(c.call()))
    return differentiate_rule(c, launch);
  differentiate_delta_tokens(c.call(), launch, delta_recurrence(c, false, c.has("dfinal_state")));
}

template <class E>
void rule_formula(const RuleCall& c, E& exact) {
  delta_formula(c, exact, false);
}

Tensor rule_gates(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample&) {
  return Tensor::random_uniform(shape, type, seed, -0.2, 0);
}

}  // namespace

const OperatorSchema& gated_delta_rule_schema() {
  using Op = GatedDeltaRule;
  static const OperatorSchema table =
      Schema<Op>("gated_delta_rule",
                 "linear attention whose state replaces the value of each key, with decays")
          .with(add_delta_inputs<Op>)
          .in(&Op::beta, "beta", token_list("key_heads*group"), floats,
              "share of the stored value that is replaced, 0 to 1")
          .values(shares_of_example)
          .in(&Op::g, "g", token_list("key_heads*group"), is(f32), "logarithms of decays, at most 0")
          .values(rule_gates)
          .with(add_delta_rest<Op>)
          .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the heads")
          .source(
              "Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks; by chunks as Yang et al. 2024, "
              "Parallelizing Linear Transformers with the Delta Rule")
          .gradient("gated_delta_rule_backward")
          .flops("6*batch*tokens*key_heads*group*d*d_v")
          .examples(
              {{"ragged",
                "batch=2 tokens=20 key_heads=1 group=2 d=10 d_v=9 g initial_state "
                "output_final_state"},
               {"short_bf16", "batch=3 tokens=9 key_heads=1 group=2 d=40 d_v=136 bf16 beta:bf16 qk_l2norm g"},
               {"l2norm_bf16",
                "batch=1 tokens=130 key_heads=1 group=1 d=32 d_v=20 bf16 beta:bf16 "
                "qk_l2norm initial_state output_final_state g"},
               {"groups_bf16",
                "batch=1 tokens=130 key_heads=1 group=2 d=64 d_v=128 bf16 g initial_state "
                "output_final_state"},
               {"packed_f16",
                "tokens=150 sequences=3 cu_seqlens key_heads=1 group=2 d=16 d_v=16 f16 g "
                "initial_state output_final_state"},
               {"one_token",
                "batch=2 tokens=1 key_heads=1 group=2 d=20 d_v=40 g qk_l2norm "
                "initial_state output_final_state"}})
          .measured(
              {{"16_32x128_1x32k_bf16", "batch=1 tokens=32768 key_heads=16 group=2 d=128 d_v=128 bf16 g"},
               {"2_8x128_1x32k_bf16", "batch=1 tokens=32768 key_heads=2 group=4 d=128 d_v=128 bf16 g"},
               {"2_8x128_1x8k_bf16", "batch=1 tokens=8192 key_heads=2 group=4 d=128 d_v=128 bf16 g"},
               {"one_token_128_bf16",
                "batch=128 tokens=1 key_heads=16 group=2 d=128 d_v=128 bf16 g "
                "qk_l2norm initial_state output_final_state"}})
          .maps(scan_maps())
          .run(run_rule, rule_formula<Exact>);
  return table;
}

const OperatorSchema& gated_delta_rule_backward_schema() {
  return gradient_table<run_rule_backward, rule_formula<Traced>>(
      gated_delta_rule_schema(), "18*batch*tokens*key_heads*group*d*d_v", "q");
}

}  // namespace tegula::ops
