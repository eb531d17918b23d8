#include "tegula/ops/kda.hpp"

#include "ops/gated_delta/delta_table.hpp"
#include "ops/gated_delta/kda_kernel.hpp"
#include "ops/linear/recurrent.hpp"
#include "ops/linear/unit_rows.hpp"

namespace tegula::ops {

namespace {

using Call = Bound<Kda>;

void run(const Call& c, Launch& launch) {
  TensorRef q = token_view(c.call(), "q"), k = token_view(c.call(), "k");
  const TensorRef v = token_view(c.call(), "v"), g = token_view(c.call(), "g"),
                  beta = token_view(c.call(), "beta"), out = token_view(c.call(), "out");
  const double scale = c.real("scale");
  const bool first = c.has("initial_state"), packed = c.has("cu_seqlens");
  const DType type = c.type("q");
  const int d = c.small_dim("d"), d_v = c.small_dim("d_v");
  if (c.dim("longest") <= most_recurrent_tokens) {
    RecurrentKernel kernel{type, type, d, d_v, 32, f32, {}, c.type("beta"), c->qk_l2norm};
    kernel.by_feature = true, kernel.first = first, kernel.last = c->output_final_state;
    kernel.packed = packed;
    return launch(kernel, recurrent_kernel,
                  {{"q", q}, {"k", k}, {"v", v}, {"g", g}, {"beta", beta}, {"scale", scale}, {"out", out}});
  }
  const std::int64_t key_heads = c.dim("key_heads");
  const Shape rows{q.shape[0], q.shape[1], key_heads, d};
  const Tensor unit_q = launch.scratch(c->qk_l2norm ? rows : Shape{0}, type),
               unit_k = launch.scratch(unit_q.shape(), type);
  if (c->qk_l2norm) {
    launch(UnitRowsKernel{type, d}, unit_rows_kernel, {{"x", q}, {"y", unit_q}});
    launch(UnitRowsKernel{type, d}, unit_rows_kernel, {{"x", k}, {"y", unit_k}});
    q = unit_q, k = unit_k;
  }
  const ScanKernel blocks =
      narrow({.type = type, .d = d, .d_v = d_v}, sequences_of(c.call()) * c.dim("heads"));
  launch(KdaKernel{type, c.type("beta"), d, d_v, blocks.block, first, c->output_final_state, packed},
         kda_kernel,
         {{"q", q}, {"k", k}, {"v", v}, {"g", g}, {"beta", beta}, {"scale", scale}, {"out", out}});
}

void formula(const Call& c, Exact& exact) { delta_formula(c, exact, true); }

Tensor gates_of_example(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample&) {
  return Tensor::random_uniform(shape, type, seed, -0.4, 0);
}

}  // namespace

const OperatorSchema& kda_schema() {
  using Op = Kda;
  static const OperatorSchema table =
      Schema<Op>("kda", "the gated delta rule with a decay for each feature")
          .with(add_delta_inputs<Op>)
          .in(&Op::g, "g", token_list("key_heads*group d"), is(f32), "logarithms of decays, -5 to 0")
          .values(gates_of_example)
          .in(&Op::beta, "beta", token_list("key_heads*group"), floats, "how much is replaced, 0 to 1")
          .values(shares_of_example)
          .with(add_delta_rest<Op>)
          .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the heads")
          .source("Kimi Team 2025, Kimi Linear: An Expressive, Efficient Attention Architecture")
          .no_gradient("it is not implemented; gated_delta_rule has one")
          .flops("6*batch*tokens*key_heads*group*d*d_v")
          .examples({{"ragged",
                      "batch=2 tokens=20 key_heads=1 group=2 d=10 d_v=9 initial_state "
                      "output_final_state"},
                     {"l2norm_bf16",
                      "batch=1 tokens=70 key_heads=1 group=1 d=32 d_v=20 bf16 beta:bf16 "
                      "qk_l2norm initial_state output_final_state"},
                     {"packed_f16",
                      "tokens=60 sequences=3 cu_seqlens key_heads=1 group=2 d=16 d_v=16 f16 "
                      "initial_state output_final_state"},
                     {"one_token",
                      "batch=2 tokens=1 key_heads=1 group=2 d=20 d_v=40 qk_l2norm "
                      "initial_state output_final_state"}})
          .measured({{"64x128_1x8k_bf16", "batch=1 tokens=8192 key_heads=64 group=1 d=128 d_v=128 bf16"},
                     {"one_token_128_bf16",
                      "batch=128 tokens=1 key_heads=32 group=1 d=128 d_v=128 bf16 "
                      "qk_l2norm initial_state output_final_state"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
