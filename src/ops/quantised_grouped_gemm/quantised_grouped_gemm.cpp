#include "tegula/ops/quantised_grouped_gemm.hpp"

#include <algorithm>

#include "ops/products/groups_table.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/quantised_gemm/weight_rules.hpp"
#include "ops/quantised_grouped_gemm/kernel.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<QuantisedGroupedGemm>& c, Launch& launch) {
  std::optional<TensorRef> zeros;
  if (c.has("zeros")) zeros = c["zeros"];
  const GivenWeights given(c->format, c->packed, c.small_dim("of_scale"), c["b"], c["scales"], zeros);
  const GroupedForm form{c.has("offsets"), c.has("counts")};
  const std::int64_t rows = GroupedRows{c.dim("groups"), c.dim("m"), c->max_rows, form.offsets}.usual();
  QuantisedGroupedGemmKernel t = planned({.type = c.type("a"),
                                          .out = c.type("out"),
                                          .form = form,
                                          .weights = given.weights,
                                          .bias = c.type_if("bias"),
                                          .row_weights = c.has("row_weights"),
                                          .row_scale = c.has("row_scale")},
                                         {c.dim("groups"), rows, c.dim("n"), c.dim("k")}, c.call());
  t.padding = padding_of_rows(launch, c["a"], c["out"]);
  const TensorRef zeros_or_none = given.zeros.value_or(given.scales);
  pad_numbers(t.weights, given.scales, zeros_or_none, launch);
  launch(t, quantised_grouped_gemm_program,
         {{"b", given.b}, {"scales", given.scales}, {"zeros", zeros_or_none}});
}

// The weights of a group as they are multiplied, [n, k].
std::vector<double> weights_of_group(const Bound<QuantisedGroupedGemm>& c, Exact& exact, std::int64_t g) {
  const std::int64_t n = c.dim("n"), k = c.dim("k"), blocks = c.dim("blocks");
  const std::vector<double> scales = scales_of(exact["scales"].select(0, g).contiguous());
  const double* zeros = exact.data_if("zeros");
  const tegula::Tensor b = exact["b"].select(0, g);
  std::vector<double> weights(static_cast<std::size_t>(n * k));
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t e = 0; e < k; ++e) {
      const std::int64_t at = e / c.dim("of_scale") * n + j;
      const double zero = zeros ? zeros[g * blocks * n + at] : zero_of(c->format);
      const double weight = (stored_weight(b, c->format, c->packed, j, e) - zero) * scales[at];
      weights[j * k + e] = exact.steps() == f64 ? weight : round_to(rounded_weights(c.type("a")), weight);
    }
  return weights;
}

void formula(const Bound<QuantisedGroupedGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  const std::vector<double> a = exact["a"].values<double>();  // of integers too
  const double *bias = exact.data_if("bias"), *factors = exact.data_if("row_weights"),
               *of_row = exact.data_if("row_scale");
  double* out = exact.data("out");
  if (c.has("offsets")) std::fill(out, out + m * n, Exact::unspecified());
  const auto* offsets = c.has("offsets") ? exact["offsets"].data_as<std::int32_t>() : nullptr;
  const auto* counts = c.has("counts") ? exact["counts"].data_as<std::int32_t>() : nullptr;
  for (std::int64_t g = 0; g < c.dim("groups"); ++g) {
    const std::vector<double> weights = weights_of_group(c, exact, g);
    const std::int64_t first = offsets ? offsets[g] : g * m, rows = offsets ? offsets[g + 1] - first : m;
    for (std::int64_t i = first; i < first + rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t e = 0; e < k; ++e) sum += a[i * k + e] * weights[j * k + e];
        sum = sum * (of_row ? of_row[i] : 1) + (bias ? bias[g * n + j] : 0);
        out[i * n + j] =
            counts && i - first >= counts[g] ? Exact::unspecified() : sum * (factors ? factors[i] : 1);
      }
  }
}

std::vector<Example> grouped_examples() {
  return {{"int4", "groups=3 m=70 k=128 n=72 blocks=1 offsets bias row_weights"},
          {"mxfp4", "groups=3 m=70 k=128 n=72 blocks=4 offsets format=mxfp4 scales:u8 bias row_weights"},
          {"mxfp4_e4m3",
           "groups=3 m=70 k=128 n=40 blocks=4 e4m3 offsets format=mxfp4 scales:u8 packed bias:f32 "
           "row_scale row_weights"},
          {"int4_i8", "groups=2 m=20 k=128 n=24 blocks=1 i8 b:u8 offsets scales:f32 bias:f32 row_scale"},
          {"int4_odd", "groups=3 m=70 k=412 n=75 blocks=1 block=0 offsets bias"},
          {"mxfp4_odd", "groups=3 m=150 k=128 n=140 blocks=4 offsets format=mxfp4 scales:u8 packed bias"},
          {"int4_masked", "groups=2 m=37 k=256 n=40 blocks=2 counts f16 packed zeros:f16"}};
}

std::vector<Example> grouped_measured() {
  return {{"gpt_oss",
           "groups=32 m=65536 k=2880 n=5760 blocks=90 offsets format=mxfp4 scales:u8 packed bias "
           "row_weights"},
          {"gpt_oss_decode",
           "groups=32 m=64 k=2880 n=5760 blocks=90 offsets format=mxfp4 scales:u8 packed bias"}};
}

std::vector<CallMap> grouped_maps() {
  return {{"rows",
           "groups=32 k=2880 n=2880 blocks=90 offsets packing=even format=mxfp4 scales:u8 packed",
           {"m=128", "m=256", "m=512", "m=1000", "m=1024", "m=4096", "m=16384", "m=65536"},
           {"", "bias row_weights", "packing=random", "packing=one_long", "packed=false", "e4m3 row_scale",
            "f16", "k=2944 blocks=23 format=int4 scales:bf16",
            "k=2944 blocks=23 format=int4 scales:bf16 packed=false"}}};
}

}  // namespace

const OperatorSchema& quantised_grouped_gemm_schema() {
  using Op = QuantisedGroupedGemm;
  static const OperatorSchema table =
      Schema<Op>("quantised_grouped_gemm",
                 "rows of groups times their matrices, of weights of 8, 4 or 2 bits")
          .in(&Op::a, "a", "offsets ? m k : groups m k", one_of({bf16, f16, e4m3, i8}), "rows of all groups")
          .in(&Op::b, "b", "format=int8 ? groups n k : format=ternary ? groups n k/4 : groups n k/2",
              one_of({u8, i8}), "weights: one, two or four in a byte")
          .range("0", "256")
          .in(&Op::scales, "scales", "groups blocks n", one_of({f16, bf16, f32, u8, e4m3}),
              "factors of every block of weights")
          .values(example_scales)
          .in(&Op::zeros, "zeros", "groups blocks n", floats, "subtracted from the weights of a block")
          .in(&Op::row_scale, "row_scale", "offsets ? m : groups m", is(f32),
              "factors of the rows of a, such as those of 8 bits")
          .in(&Op::bias, "bias", "groups n", floats, "added to every row of a group")
          .in(&Op::row_weights, "row_weights", "offsets ? m : groups m", is(f32),
              "factors of the results' rows")
          .with(add_offsets<Op>)
          .with(add_counts<Op>)
          .option(&Op::format, "format", "format of a weight before it is scaled")
          .option(&Op::packed, "packed", "b is in the order that packed_weights returns")
          .option(&Op::block, "block",
                  "weights that share a scale; 0: a whole row; 32 for mxfp4, 16 for nvfp4",
                  between(0, 1 << 20, "0, 16, 32 or a multiple of 64", "give scales of such blocks"))
          .with(add_max_rows<Op>)
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Op::out, "out", "offsets ? m n : groups m n", chosen_by("out_dtype", floats.types, "a", bf16),
               "row_weights * (row_scale * (a * W^T) + bias)")
          .let("of_scale", "format=mxfp4 ? 32 : (format=nvfp4 ? 16 : (block == 0 ? max(k,1) : block))")
          .with([](Schema<Op>& table) { add_weight_rules<&Op::block>(table, "block"); })
          .source("OpenAI 2025, gpt-oss; OCP Microscaling Formats (MX) 1.0, 2023")
          .no_gradient("its weights are quantised")
          .flops("offsets ? 2*m*n*k : 2*groups*m*n*k")
          .examples(grouped_examples())
          .measured(grouped_measured())
          .maps(grouped_maps())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
