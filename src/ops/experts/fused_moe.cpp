#include "ops/experts/rows.hpp"
#include "ops/experts/steps.hpp"
#include "ops/experts/unit_formula.hpp"
#include "ops/schema/gradient.hpp"
#include "tegula/ops/experts.hpp"

namespace tegula::ops {

namespace {

std::optional<TensorRef> if_given(const Bound<FusedMoe>& c, const char* tensor) {
  if (!c.has(tensor)) return {};
  return c[tensor];
}

void run(const Bound<FusedMoe>& c, Launch& launch) {
  ExpertSteps steps(c.call(), launch, unit_of(*c));
  steps.sort();
  const Tensor rows = steps.permuted(c["x"]);
  const Tensor h = steps.product(rows, c["w1"], if_given(c, "bias1"));
  const Tensor y = steps.product(steps.activated(h), c["w2"], if_given(c, "bias2"));
  steps.unpermute(y, true, c["out"]);
}

// Gradients of matrices and biases: sums over the rows of every expert.
void sum_rows(ExpertSteps& steps, const TensorRef& a, const TensorRef& dout, const TensorRef& out) {
  const GroupedWeightsKernel kernel =
      planned_weights({.type = steps.type(), .out = out.dtype}, steps.extents(dout.size(1), a.size(1)),
                      steps.launch(), a, dout, out);
  steps.launch()(kernel, grouped_weights_program,
                 {{"a", a}, {"dout", dout}, {"offsets", steps.offsets()}, {"max_rows", 0}, {"out", out}});
}
void sum_biases(ExpertSteps& steps, const TensorRef& rows, const TensorRef& sums) {
  steps.launch()(GroupSumsKernel{steps.type()}, group_sums_program,
                 {{"rows", rows}, {"offsets", steps.offsets()}, {"sums", sums}});
}

void run_backward(const Bound<FusedMoe>& c, Launch& launch) {
  ExpertSteps steps(c.call(), launch, unit_of(*c));
  steps.sort();
  const Tensor rows = steps.permuted(c["x"]);
  const Tensor h = steps.product(rows, c["w1"], if_given(c, "bias1")), units = steps.activated(h);
  const Tensor y = steps.product(units, c["w2"], if_given(c, "bias2"));
  const Tensor dy = steps.scratch(c.dim("d"), steps.type());
  MoeRowsKernel kernel = planned_rows(steps.type(), c.dim("d"), c.dim("topk"));
  kernel.weights = c.type("weights");
  launch(kernel, moe_unpermute_gradient,
         {{"y", y},
          {"dout", c["dout"]},
          {"order", steps.order()},
          {"weights", c.rows("weights", 2)},
          {"dweights", c.rows("dweights", 2)},
          {"dy", dy}});
  sum_rows(steps, dy, units, c["dw2"]);
  if (c.has("bias2")) sum_biases(steps, dy, c["dbias2"]);
  const Tensor dh = steps.activation_gradient(steps.product(dy, c["w2"], {}, false), h);
  sum_rows(steps, dh, rows, c["dw1"]);
  if (c.has("bias1")) sum_biases(steps, dh, c["dbias1"]);
  steps.unpermute(steps.product(dh, c["w1"], {}, false), false, c["dx"]);
}

template <class E>
void formula(const Bound<FusedMoe>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t topk = c.dim("topk"), d = c.dim("d"), inner = c.dim("inner");
  auto *x = exact.data("x"), *weights = exact.data("weights"), *w1 = exact.data("w1"), *w2 = exact.data("w2");
  auto *bias1 = exact.data_if("bias1"), *bias2 = exact.data_if("bias2"), *out = exact.data("out");
  for (const RoutedPair& pair : pairs_of(c["experts"])) {
    const auto product = [&](const Number* row, const Number* matrix, const Number* bias, std::int64_t j,
                             std::int64_t n, std::int64_t k) {
      Number sum = bias ? bias[pair.expert * n + j] : Number(0);
      for (std::int64_t e = 0; e < k; ++e) sum += row[e] * matrix[(pair.expert * n + j) * k + e];
      return exact.step(sum);
    };
    std::vector<Number> h, units;
    for (std::int64_t j = 0; j < 2 * inner; ++j)
      h.push_back(product(x + pair.token * d, w1, bias1, j, 2 * inner, d));
    for (std::int64_t j = 0; j < inner; ++j) units.push_back(exact.step(unit_formula(*c, h, j)));
    for (std::int64_t j = 0; j < d; ++j)
      out[pair.token * d + j] +=
          weights[pair.token * topk + pair.choice] * product(units.data(), w2, bias2, j, d, inner);
  }
}

}  // namespace

const OperatorSchema& fused_moe_schema() {
  using Op = FusedMoe;
  static const OperatorSchema table =
      Schema<Op>("fused_moe",
                 "a mixture of experts: gated units between two products, of the experts of every token")
          .in(&Op::x, "x", "tokens d", floats, "rows of tokens")
          .with(add_routing<Op>)
          .in(&Op::w1, "w1", "groups 2*inner d", same_as("x"),
              "matrix of each expert: the rows of gates, then those of values")
          .in(&Op::w2, "w2", "groups d inner", same_as("x"), "second matrix of each expert")
          .in(&Op::bias1, "bias1", "groups 2*inner", floats, "added to the first products")
          .in(&Op::bias2, "bias2", "groups d", floats, "added to the second products")
          .with(add_unit<Op>)
          .out(&Op::out, "out", "tokens d", same_as("x"),
               "sum of weights * (unit(x w1^T + bias1) w2^T + bias2)")
          .source(
              "Shazeer et al. 2017, Outrageously Large Neural Networks; DeepSeek-AI 2024; OpenAI 2025, "
              "gpt-oss")
          .gradient("fused_moe_backward")
          .flops("6*tokens*topk*d*inner")
          .examples({{"ragged", "tokens=13 topk=2 d=20 groups=3 inner=12"},
                     {"oai_bf16",
                      "tokens=40 topk=3 d=72 groups=4 inner=40 unit=swiglu_oai interleaved bias1 bias2 bf16 "
                      "weights:f32 bias1:f32 bias2:f32"}})
          .measured({{"deepseek", "tokens=4096 topk=8 d=7168 groups=32 inner=2048 bf16 weights:f32"},
                     {"qwen3", "tokens=32768 topk=8 d=2048 groups=128 inner=768 bf16 weights:f32"}})
          // Few tokens meet some of the experts only: their bound is not known.
          .maps({{"tokens",
                  "topk=8 d=2048 groups=32 inner=768 bf16 weights:f32",
                  {"tokens=64", "tokens=100", "tokens=256", "tokens=1000", "tokens=1024", "tokens=4096",
                   "tokens=16384"},
                  {"", "topk=2", "groups=8", "d=1000", "d=2880 inner=2880", "inner=500",
                   "unit=swiglu_oai interleaved", "bias1:f32 bias2:f32", "f16"}}})
          .run(run, formula<Exact>);
  return table;
}

const OperatorSchema& fused_moe_backward_schema() {
  return gradient_table<run_backward, formula<Traced>>(fused_moe_schema(), "20*tokens*topk*d*inner", "x");
}

}  // namespace tegula::ops
