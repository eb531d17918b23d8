#include "tegula/ops/gated_units.hpp"

#include <algorithm>

#include "ops/pieces/row_tiles.hpp"
#include "ops/rows/gated_unit_kernel.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

template <class Op>
constexpr GatedUnit unit_of = std::is_same_v<Op, SiluAndMul>   ? GatedUnit::silu
                              : std::is_same_v<Op, GeluAndMul> ? GatedUnit::gelu
                              : std::is_same_v<Op, ReluAndMul> ? GatedUnit::relu
                                                               : GatedUnit::swiglu_oai;

template <class Op>
GatedUnitKernel gated_plan(const Bound<Op>& c) {
  bool interleaved = false;
  if constexpr (unit_of<Op> == GatedUnit::swiglu_oai) interleaved = c->interleaved;
  GatedUnitKernel made = planned_unit(c.type("x"), unit_of<Op>, interleaved, c.dim("d"));
  made.rows = rows_of_tile(made.rows, made.columns);
  return made;
}

double largest(double x, double y) { return std::max(x, y); }
TracedNumber largest(const TracedNumber& x, double y) {
  return x.value > y || (y < 0 && x.value >= y) ? x : TracedNumber(y);
}

double least(double x, double y) { return std::min(x, y); }
TracedNumber least(const TracedNumber& x, double y) { return x.value <= y ? x : TracedNumber(y); }

template <class Op, class E>
void gated_formula(const Bound<Op>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  auto *x = exact.data("x"), *out = exact.data("out");
  const auto value = [](const Number& gate) -> Number {
    if constexpr (std::is_same_v<Op, SiluAndMul>) return gate / (1 + exp(-gate));
    if constexpr (std::is_same_v<Op, ReluAndMul>) return largest(gate, 0);
    const Number inner = static_cast<double>(root_of_gelu) * (gate + cube_of_gelu * (gate * gate * gate));
    return 0.5 * gate * (1 + tanh(inner));
  };
  for (std::int64_t i = 0; i < rows; ++i, x += 2 * d)
    for (std::int64_t j = 0; j < d; ++j) *out++ = exact.step(value(x[j])) * x[d + j];
}

template <class E>
void oai_formula(const Bound<SwigluOai>& c, E& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d"), step = c->interleaved ? 2 : 1;
  const double limit = c->limit, alpha = c->alpha;
  auto *x = exact.data("x"), *out = exact.data("out");
  for (std::int64_t i = 0; i < rows; ++i, x += 2 * d)
    for (std::int64_t j = 0; j < d; ++j) {
      const auto gate = least(x[j * step], limit);
      const auto value = largest(least(x[c->interleaved ? 2 * j + 1 : d + j], limit), -limit);
      *out++ = exact.step(gate / (1 + exp(-alpha * gate))) * (value + 1);
    }
}

template <class Op>
const OperatorSchema& gated_table(const char* name, const char* doc, const char* result,
                                  const char* gradient) {
  static const OperatorSchema table =
      Schema<Op>(name, doc)
          .in(&Op::x, "x", "... 2*d", floats, "gates, followed by the values that they multiply")
          .out(&Op::out, "out", "... d", same_as("x"), result)
          .source("Shazeer 2020, GLU Variants Improve Transformer")
          .gradient(gradient)
          .flops("6*rows*d")
          .examples({{"ragged", "...=37 d=100"},
                     {"batched_bf16", "...=2,7 d=300 bf16"},
                     {"1040_bf16", "...=5 d=1040 bf16"}})
          .measured(
              {{"16384x4096_bf16", "...=16384 d=4096 bf16"}, {"4096x16384_bf16", "...=4096 d=16384 bf16"}})
          .run(gated_plan<Op>, gated_unit_program, gated_formula<Op, Exact>);
  return table;
}

template <class Op>
const OperatorSchema& gradients_of(const OperatorSchema& table) {
  return gradient_table<gated_plan<Op>, gated_unit_gradient, gated_formula<Op, Traced>>(table, "16*rows*d");
}

}  // namespace

const OperatorSchema& silu_and_mul_schema() {
  return gated_table<SiluAndMul>("silu_and_mul", "silu of the first half of every row, times the second",
                                 "x1 / (1 + exp(-x1)) * x2 of the halves x1 and x2", "silu_and_mul_backward");
}
const OperatorSchema& gelu_and_mul_schema() {
  return gated_table<GeluAndMul>(
      "gelu_and_mul", "gelu of the first half of every row, times the second",
      "x1/2 * (1 + tanh(sqrt(2/pi) * (x1 + 0.044715 x1^3))) * x2 of the halves x1 and x2",
      "gelu_and_mul_backward");
}
const OperatorSchema& relu_and_mul_schema() {
  return gated_table<ReluAndMul>("relu_and_mul", "relu of the first half of every row, times the second",
                                 "max(x1, 0) * x2 of the halves x1 and x2", "relu_and_mul_backward");
}
const OperatorSchema& silu_and_mul_backward_schema() {
  return gradients_of<SiluAndMul>(silu_and_mul_schema());
}
const OperatorSchema& gelu_and_mul_backward_schema() {
  return gradients_of<GeluAndMul>(gelu_and_mul_schema());
}
const OperatorSchema& relu_and_mul_backward_schema() {
  return gradients_of<ReluAndMul>(relu_and_mul_schema());
}

const OperatorSchema& swiglu_oai_schema() {
  using Op = SwigluOai;
  static const OperatorSchema table =
      Schema<Op>("swiglu_oai", "gated units that are clamped, as gpt-oss has them")
          .in(&Op::x, "x", "... 2*d", floats,
              "gates and the values that they multiply, one after the other or interleaved")
          .option(&Op::alpha, "alpha", "factor of the gate inside the sigmoid", finite)
          .option(&Op::limit, "limit", "limit to which gates and values are clamped", positive)
          .option(&Op::interleaved, "interleaved", "gates and values alternate, each gate before its value")
          .out(&Op::out, "out", "... d", same_as("x"),
               "g / (1 + exp(-alpha * g)) * (v + 1) with g = min(gate, limit), v = clamp(value, limit)")
          .source("OpenAI 2025, gpt-oss")
          .gradient("swiglu_oai_backward")
          .flops("8*rows*d")
          .examples(
              {{"ragged", "...=37 d=100 limit=0.7"}, {"interleaved_bf16", "...=2,7 d=300 interleaved bf16"}})
          .measured({{"16384x2880_bf16", "...=16384 d=2880 interleaved bf16"}})
          .run(gated_plan<Op>, gated_unit_program, oai_formula<Exact>);
  return table;
}
const OperatorSchema& swiglu_oai_backward_schema() {
  return gradient_table<gated_plan<SwigluOai>, gated_unit_gradient, oai_formula<Traced>>(swiglu_oai_schema(),
                                                                                         "20*rows*d");
}

}  // namespace tegula::ops
