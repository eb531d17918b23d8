#include "tegula/ops/scaled_grouped_gemm.hpp"

#include <algorithm>

#include "ops/products/groups_table.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/maps.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/scaled_grouped_gemm/kernel.hpp"
#include "ops/schema/schema.hpp"
#include "ops/schema/sums_of_8_bits.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<ScaledGroupedGemm>& c, Launch& launch) {
  const GroupedForm form{c.has("offsets"), c.has("counts")};
  const std::int64_t rows = GroupedRows{c.dim("groups"), c.dim("m"), c->max_rows, form.offsets}.usual();
  ScaledGroupedGemmKernel t = planned({.type = c.type("a"),
                                       .scale = c.type("scale_a"),
                                       .out = c.type("out"),
                                       .form = form,
                                       .by_block_a = lies_along_rows(c["scale_a"]),
                                       .by_block_b = lies_along_rows(c["scale_b"]),
                                       .bias = c.type_if("bias"),
                                       .rows_b = c->rows_b},
                                      {c.dim("groups"), rows, c.dim("n"), c.dim("k")}, c.call());
  t.padding = padding_of(launch, t.compute, c["a"], c["b"], c["out"]);
  launch(t, scaled_grouped_gemm_program,
         {{"scale_a", turned(c["scale_a"], t.by_block_a)}, {"scale_b", turned(c["scale_b"], t.by_block_b)}});
}

void formula(const Bound<ScaledGroupedGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k"), groups = c.dim("groups");
  const std::int64_t blocks = c.dim("blocks"), scale_rows = (n + c->rows_b - 1) / c->rows_b;
  const auto b = exact.array("b");
  const double* a = exact.data("a");
  const double* bias = exact.data_if("bias");
  double* out = exact.data("out");
  if (c.has("offsets")) std::fill(out, out + m * n, Exact::unspecified());
  const std::vector<double> of_a = scales_of(exact["scale_a"]), of_b = scales_of(exact["scale_b"]);
  const auto* offsets = c.has("offsets") ? exact["offsets"].data_as<std::int32_t>() : nullptr;
  const auto* counts = c.has("counts") ? exact["counts"].data_as<std::int32_t>() : nullptr;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = offsets ? offsets[g] : g * m, rows = offsets ? offsets[g + 1] - first : m;
    for (std::int64_t i = first; i < first + rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias ? bias[g * n + j] : 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int64_t e = block * scaled_block, count = std::min<std::int64_t>(scaled_block, k - e);
          const double *row = a + i * k + e, *column = &b(g, j, e);
          const double partial = sum_of_8_bits(count, exact.steps() != f64,
                                               [&](std::int64_t at) { return row[at] * column[at]; });
          sum += partial * of_a[i * blocks + block] * of_b[(g * scale_rows + j / c->rows_b) * blocks + block];
        }
        out[i * n + j] = counts && i - first >= counts[g] ? Exact::unspecified() : sum;
      }
  }
}

}  // namespace

const OperatorSchema& scaled_grouped_gemm_schema() {
  using Op = ScaledGroupedGemm;
  static const OperatorSchema table =
      Schema<Op>("scaled_grouped_gemm", "rows of each group times its matrix, in 8-bit floats with scales")
          .in(&Op::a, "a", "offsets ? m k : groups m k", one_of({e4m3, e5m2}), "rows of all groups")
          .in(&Op::b, "b", "groups n k", same_as("a"), "the matrices of the groups, transposed")
          .in(&Op::scale_a, "scale_a", "offsets ? m blocks : groups m blocks", one_of({f32, u8}),
              "scales of each row for every 128 elements of k; u8 means e8m0")
          .range("120", "135")
          .in(&Op::scale_b, "scale_b", "groups (n+rows_b-1)/rows_b blocks", same_as("scale_a"),
              "scales of every rows_b rows for every 128 elements of k")
          .range("120", "135")
          .in(&Op::bias, "bias", "groups n", floats, "added to every row of a group")
          .with(add_offsets<Op>)
          .with(add_counts<Op>)
          .option(&Op::rows_b, "rows_b", "rows of b that share a scale",
                  between(1, 128, "128 or 1", "give scales of single rows, or of 128"))
          .with(add_max_rows<Op>)
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Op::out, "out", "offsets ? m n : groups m n",
               chosen_by("out_dtype", {bf16, f16, f32}, "a", bf16), "the scaled products")
          .require("scale_a", "blocks == ceildiv(k,128)", "a scale for each 128 of k", "scale blocks of 128")
          .require(
              "rows_b", [](const Bound<Op>& c) { return c->rows_b == 1 || c->rows_b == 128; }, "128 or 1",
              "give scales of single rows, or of 128")
          .source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM")
          .no_gradient("its operands are quantised")
          .flops("offsets ? 2*m*n*k : 2*groups*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=140 n=72 blocks=2 offsets"},
                     {"masked", "groups=3 m=37 k=256 n=136 blocks=2 counts bias out_dtype=f32"}})
          .measured({{"4x8192", "groups=4 m=32768 k=7168 n=4096 blocks=56 offsets"},
                     {"16_ragged", "groups=16 m=16384 k=4096 n=2048 blocks=32 offsets"},
                     {"8x1024_masked", "groups=8 m=1024 k=7168 n=4096 blocks=56 counts"}})
          .maps(group_maps({"offsets", true}))
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
