#include "tegula/ops/grouped_gemm.hpp"

#include <algorithm>

#include "ops/grouped_gemm/kernel.hpp"
#include "ops/pieces/precision.hpp"
#include "ops/products/groups_table.hpp"
#include "ops/products/maps.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<GroupedGemm>& c, Launch& launch) {
  const GroupedForm form{c.has("offsets"), c.has("counts")};
  const std::int64_t rows = GroupedRows{c.dim("groups"), c.dim("m"), c->max_rows, form.offsets}.usual();
  launch(planned({.type = c.type("a"),
                  .out = c.type("out"),
                  .form = form,
                  .transpose_b = c->transpose_b,
                  .bias = c.type_if("bias"),
                  .precision = c->precision},
                 {c.dim("groups"), rows, c.dim("n"), c.dim("k")}, launch, c["a"], c["b"], c["out"]),
         grouped_gemm_program);
}

void formula(const Bound<GroupedGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k"), groups = c.dim("groups");
  const auto b = exact.array("b");
  const double* a = exact.data("a");
  const double* bias = exact.data_if("bias");
  double* out = exact.data("out");
  if (c.has("offsets")) std::fill(out, out + m * n, Exact::unspecified());
  const auto* offsets = c.has("offsets") ? exact["offsets"].data_as<std::int32_t>() : nullptr;
  const auto* counts = c.has("counts") ? exact["counts"].data_as<std::int32_t>() : nullptr;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = offsets ? offsets[g] : g * m, rows = offsets ? offsets[g + 1] - first : m;
    for (std::int64_t i = first; i < first + rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias ? bias[g * n + j] : 0;
        for (std::int64_t e = 0; e < k; ++e)
          sum +=
              operand(c, exact, a[i * k + e]) * operand(c, exact, c->transpose_b ? b(g, j, e) : b(g, e, j));
        out[i * n + j] = counts && i - first >= counts[g] ? Exact::unspecified() : sum;
      }
  }
}

void run_weights(const Bound<GroupedGemmWeights>& c, Launch& launch) {
  launch(planned_weights(
             {.type = c.type("a"), .out = c.type("out"), .c = c.type_if("c"), .precision = c->precision},
             {c.dim("groups"), 1, c.dim("n"), c.dim("k")}, launch, c["a"], c["dout"], c["out"]),
         grouped_weights_program);
}

void weights_formula(const Bound<GroupedGemmWeights>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), k = c.dim("k"), groups = c.dim("groups");
  const auto a = exact.array("a"), dout = exact.array("dout"), out = exact.array("out");
  const double* added = exact.data_if("c");
  const auto* offsets = exact["offsets"].data_as<std::int32_t>();
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = added ? added[(g * k + i) * n + j] : 0;
        for (std::int64_t row = offsets[g]; row < offsets[g + 1]; ++row)
          sum += operand(c, exact, a(row, i)) * operand(c, exact, dout(row, j));
        out(g, i, j) = sum;
      }
}

void accumulate(const Bound<AccumulateGroupedGemmWeights>& c, Launch& launch) {
  const GroupedWeightsKernel kernel =
      planned_weights({.type = c.type("a"), .out = c.type("sum"), .accumulates = true},
                      {c.dim("groups"), 1, c.dim("n"), c.dim("k")}, launch, c["a"], c["dout"], c["sum"]);
  launch(kernel, grouped_weights_program, {{"out", c["sum"]}});
}

void accumulate_formula(const Bound<AccumulateGroupedGemmWeights>& c, Exact& exact) {
  const auto a = exact.array("a"), dout = exact.array("dout"), sum = exact.array("sum");
  const auto* offsets = exact["offsets"].data_as<std::int32_t>();
  for (std::int64_t g = 0; g < c.dim("groups"); ++g)
    for (std::int64_t row = offsets[g]; row < offsets[g + 1]; ++row)
      for (std::int64_t i = 0; i < c.dim("k"); ++i)
        for (std::int64_t j = 0; j < c.dim("n"); ++j) sum(g, i, j) += a(row, i) * dout(row, j);
}

}  // namespace

const OperatorSchema& grouped_gemm_schema() {
  static const OperatorSchema table =
      Schema<GroupedGemm>("grouped_gemm", "rows of each group times its matrix")
          .in(&GroupedGemm::a, "a", "offsets ? m k : groups m k", floats, "rows of all groups")
          .in(&GroupedGemm::b, "b", "transpose_b ? groups n k : groups k n", same_as("a"),
              "the matrices of the groups")
          .remedy("check transpose_b")
          .in(&GroupedGemm::bias, "bias", "groups n", floats, "added to every row of a group")
          .with(add_offsets<GroupedGemm>)
          .with(add_counts<GroupedGemm>)
          .option(&GroupedGemm::transpose_b, "transpose_b", "b is [groups, n, k]")
          .with(add_precision<GroupedGemm>)
          .with(add_max_rows<GroupedGemm>)
          .option(&GroupedGemm::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&GroupedGemm::out, "out", "offsets ? m n : groups m n",
               chosen_by("out_dtype", floats.types, "a", bf16), "the rows times their matrices")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .composed_gradient("grouped products")
          .flops("offsets ? 2*m*n*k : 2*groups*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=40 n=72 offsets"},
                     {"transposed_bf16", "groups=4 m=130 k=72 n=40 offsets bf16 transpose_b out_dtype=f32"},
                     {"tf32_x3", "groups=2 m=70 k=40 n=72 offsets transpose_b precision=tf32x3"},
                     {"odd_bf16", "groups=3 m=150 k=393 n=137 offsets bf16 transpose_b bias"},
                     {"odd_masked_f16", "groups=2 m=37 k=385 n=70 counts f16"},
                     {"masked_f16", "groups=3 m=37 k=64 n=80 counts f16 bias:f32"}})
          .measured({{"4x8192", "groups=4 m=32768 k=7168 n=4096 offsets bf16 transpose_b"},
                     {"16_ragged", "groups=16 m=16384 k=4096 n=2048 offsets bf16 transpose_b"},
                     {"128_experts", "groups=128 m=65536 k=2048 n=768 offsets bf16 transpose_b"},
                     {"8x1024_masked", "groups=8 m=1024 k=7168 n=4096 counts bf16 transpose_b"}})
          .maps(group_maps({"offsets bf16 transpose_b"}))
          .run(run, formula);
  return table;
}

const OperatorSchema& grouped_gemm_weights_schema() {
  static const OperatorSchema table =
      Schema<GroupedGemmWeights>("grouped_gemm_weights", "gradients of the matrices of grouped_gemm")
          .in(&GroupedGemmWeights::a, "a", "m k", floats, "rows of all groups")
          .in(&GroupedGemmWeights::dout, "dout", "m n", same_as("a"), "gradients of the results")
          .with(add_offsets<GroupedGemmWeights>)
          .in(&GroupedGemmWeights::c, "c", "groups k n", floats, "added")
          .with(add_precision<GroupedGemmWeights>)
          .with(add_max_rows<GroupedGemmWeights>)
          .option(&GroupedGemmWeights::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&GroupedGemmWeights::out, "out", "groups k n",
               chosen_by("out_dtype", {f32, f16, bf16}, "", f32),
               "c + the products over the rows of every group")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .no_gradient("it is a gradient")
          .flops("2*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=40 n=72"},
                     {"added_bf16", "groups=2 m=100 k=24 n=136 bf16 c:f32"},
                     {"f16", "groups=4 m=33 k=65 n=20 f16 out_dtype=f16"},
                     {"odd_bf16", "groups=3 m=150 k=131 n=201 bf16 c:f32"}})
          .measured({{"8x2048", "groups=8 m=16384 k=4096 n=4096 bf16"}})
          .maps(group_maps({"bf16"}))
          .run(run_weights, weights_formula);
  return table;
}

const OperatorSchema& accumulate_grouped_gemm_weights_schema() {
  using Op = AccumulateGroupedGemmWeights;
  static const OperatorSchema table =
      Schema<Op>("accumulate_grouped_gemm_weights",
                 "gradients of the matrices of grouped_gemm, added in place")
          .inout(&Op::sum, "sum", "groups k n", floats, "matrices to which the gradients are added")
          .follows()
          .in(&Op::a, "a", "m k", floats, "rows of all groups")
          .in(&Op::dout, "dout", "m n", same_as("a"), "gradients of the results")
          .with(add_offsets<Op>)
          .with(add_max_rows<Op>)
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .no_gradient("it writes in place")
          .flops("2*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=40 n=72"},
                     {"into_f32", "groups=2 m=100 k=24 n=136 bf16 sum:f32"},
                     {"odd_into_f32", "groups=2 m=100 k=24 n=201 bf16 sum:f32"}})
          .measured({{"8x2048", "groups=8 m=16384 k=4096 n=4096 bf16 sum:f32"}})
          .run(accumulate, accumulate_formula);
  return table;
}

}  // namespace tegula::ops
