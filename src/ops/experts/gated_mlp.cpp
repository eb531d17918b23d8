// The expert that all tokens share: products of one group.
#include "ops/experts/steps.hpp"
#include "ops/experts/unit_formula.hpp"
#include "tegula/ops/experts.hpp"

namespace tegula::ops {

namespace {

// out = rows · bᵀ + bias.
void multiply(const Bound<GatedMlp>& c, Launch& launch, const TensorRef& rows, const char* b,
              const char* bias, const TensorRef& out) {
  const TensorRef& matrix = c[b];
  const std::int64_t m = rows.size(0), n = matrix.size(0), k = matrix.size(1);
  const GroupedGemmKernel kernel =
      planned({.type = rows.dtype, .out = rows.dtype, .transpose_b = true, .bias = c.type_if(bias)},
              {1, m, n, k}, launch, rows, of_one_group(matrix), out);
  launch(kernel, grouped_gemm_program,
         {{"a", of_one_group(rows)},
          {"b", of_one_group(matrix)},
          {"bias", of_one_group(c.has(bias) ? c[bias] : matrix)},
          {"out", of_one_group(out)}});
}

void run(const Bound<GatedMlp>& c, Launch& launch) {
  const std::int64_t rows = c.dim("rows"), inner = c.dim("inner");
  const DType type = c.type("x");
  const Tensor h = launch.scratch({rows, 2 * inner}, type), units = launch.scratch({rows, inner}, type);
  multiply(c, launch, c.formed("x"), "w1", "bias1", h);
  launch(planned_unit(type, c->unit, c->interleaved, inner), gated_unit_program, {{"x", h}, {"out", units}});
  multiply(c, launch, units, "w2", "bias2", c.formed("out"));
}

void formula(const Bound<GatedMlp>& c, Exact& exact) {
  const std::int64_t d = c.dim("d"), inner = c.dim("inner");
  const double *x = exact.data("x"), *w1 = exact.data("w1"), *w2 = exact.data("w2");
  const double *bias1 = exact.data_if("bias1"), *bias2 = exact.data_if("bias2");
  double* out = exact.data("out");
  const auto product = [](const double* row, const double* of_row, std::int64_t k) {
    double sum = 0;
    for (std::int64_t e = 0; e < k; ++e) sum += row[e] * of_row[e];
    return sum;
  };
  std::vector<double> h(static_cast<std::size_t>(2 * inner)), units(static_cast<std::size_t>(inner));
  for (std::int64_t i = 0; i < c.dim("rows"); ++i, x += d) {
    for (std::int64_t j = 0; j < 2 * inner; ++j)
      h[j] = exact.rounded(product(x, w1 + j * d, d) + (bias1 ? bias1[j] : 0));
    for (std::int64_t j = 0; j < inner; ++j) units[j] = exact.rounded(unit_formula(*c, h, j));
    for (std::int64_t j = 0; j < d; ++j)
      *out++ = product(units.data(), w2 + j * inner, inner) + (bias2 ? bias2[j] : 0);
  }
}

}  // namespace

const OperatorSchema& gated_mlp_schema() {
  using Op = GatedMlp;
  static const OperatorSchema table =
      Schema<Op>("gated_mlp", "a gated unit between two products, as an expert that all tokens share")
          .in(&Op::x, "x", "... d", floats, "rows of tokens")
          .in(&Op::w1, "w1", "2*inner d", same_as("x"), "rows of gates, then of values")
          .in(&Op::w2, "w2", "d inner", same_as("x"), "weights of the second product")
          .in(&Op::bias1, "bias1", "2*inner", floats, "added to the first product")
          .in(&Op::bias2, "bias2", "d", floats, "added to the second product")
          .with(add_unit<Op>)
          .out(&Op::out, "out", "... d", same_as("x"), "unit(x w1^T + bias1) w2^T + bias2")
          .source("Shazeer 2020, GLU Variants Improve Transformer")
          .composed_gradient("products and the gradient of the unit")
          .flops("6*rows*d*inner")
          .examples({{"ragged", "...=37 d=20 inner=24"},
                     {"biases_bf16", "...=2,9 d=72 inner=40 unit=gelu bias1 bias2 bf16"}})
          .measured({{"8192x7168x2048", "...=8192 d=7168 inner=2048 bf16"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
