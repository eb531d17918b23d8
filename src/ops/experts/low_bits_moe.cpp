// Experts whose weights have few bits, or 8 bits with scales of blocks.
#include "ops/experts/steps.hpp"
#include "ops/experts/unit_formula.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/quantised_grouped_gemm/kernel.hpp"
#include "ops/rows/cast_fp8_kernel.hpp"
#include "ops/scaled_grouped_gemm/kernel.hpp"
#include "tegula/ops/experts.hpp"

namespace tegula::ops {

namespace {

constexpr int scale_rows = 128;  // of a block of weights of 8 bits

// The matrix of all experts with what belongs to it, by name.
template <class Op>
struct Matrix {
  const Bound<Op>& c;
  const char *weights, *scales, *bias, *of_scale;

  std::optional<DType> bias_type() const { return c.type_if(bias); }
  TensorRef bias_or(const TensorRef& other) const { return c.has(bias) ? c[bias] : other; }
};

Tensor product(ExpertSteps& steps, const TensorRef& rows, const Matrix<QuantisedMoe>& matrix) {
  const Bound<QuantisedMoe>& c = matrix.c;
  const std::int64_t n = c[matrix.weights].size(1);
  const Tensor out = steps.scratch(n, steps.type());
  const GivenWeights given(c->format, c->packed, c.small_dim(matrix.of_scale), c[matrix.weights],
                           c[matrix.scales], {});
  QuantisedGroupedGemmKernel kernel = planned({.type = steps.type(),
                                               .out = steps.type(),
                                               .form = {.offsets = true},
                                               .weights = given.weights,
                                               .bias = matrix.bias_type()},
                                              steps.extents(n, rows.size(1)), c.call());
  pad_numbers(kernel.weights, given.scales, given.scales, steps.launch());
  steps.launch()(kernel, quantised_grouped_gemm_program,
                 {{"a", rows},
                  {"b", given.b},
                  {"scales", given.scales},
                  {"bias", matrix.bias_or(given.b)},
                  {"offsets", steps.offsets()},
                  {"max_rows", 0},
                  {"out", out}});
  return out;
}

Tensor product(ExpertSteps& steps, const TensorRef& rows, const Matrix<ScaledMoe>& matrix) {
  const Bound<ScaledMoe>& c = matrix.c;
  const std::int64_t n = c[matrix.weights].size(1), k = rows.size(1);
  const std::int64_t pairs = steps.pairs(), blocks = (k + scaled_block - 1) / scaled_block;
  const Tensor out = steps.scratch(n, steps.type()), values = steps.scratch(k, e4m3);
  // Those of a block are contiguous: the product reads them so.
  const Tensor memory = steps.launch().scratch({blocks, pairs}, f32);
  steps.launch()(CastFp8Kernel{steps.type()}, cast_fp8_program,
                 {{"x", of_one_group(rows)},
                  {"out", of_one_group(values)},
                  {"scale", memory.ref().reshape({1, blocks, pairs}).transpose(1, 2)}});
  const TensorRef& given = c[matrix.scales];
  const ScaledGroupedGemmKernel kernel = planned({.out = steps.type(),
                                                  .form = {.offsets = true},
                                                  .by_block_a = true,
                                                  .by_block_b = lies_along_rows(given),
                                                  .bias = matrix.bias_type(),
                                                  .rows_b = scale_rows},
                                                 steps.extents(n, k), c.call());
  steps.launch()(kernel, scaled_grouped_gemm_program,
                 {{"a", values},
                  {"b", c[matrix.weights]},
                  {"scale_a", memory},
                  {"scale_b", turned(given, kernel.by_block_b)},
                  {"bias", matrix.bias_or(given)},
                  {"offsets", steps.offsets()},
                  {"max_rows", 0},
                  {"out", out}});
  return out;
}

template <class Op>
void run(const Bound<Op>& c, const Matrix<Op>& first, const Matrix<Op>& second, Launch& launch) {
  ExpertSteps steps(c.call(), launch, unit_of(*c));
  steps.sort();
  const Tensor h = product(steps, steps.permuted(c["x"]), first);
  steps.unpermute(product(steps, steps.activated(h), second), true, c["out"]);
}
void run_quantised(const Bound<QuantisedMoe>& c, Launch& launch) {
  run(c, {c, "w1", "scales1", "bias1", "of_scale1"}, {c, "w2", "scales2", "bias2", "of_scale2"}, launch);
}
void run_scaled(const Bound<ScaledMoe>& c, Launch& launch) {
  run(c, {c, "w1", "scale1", "bias1", ""}, {c, "w2", "scale2", "bias2", ""}, launch);
}

// A row as it is multiplied: cast to e4m3 and back, or itself. A cast is an error like others: exact rows are
// not cast.
std::vector<double> multiplied(const std::vector<double>& row, bool is_cast) {
  std::vector<double> cast = row;
  for (std::size_t first = 0; is_cast && first < row.size(); first += scaled_block) {
    const std::size_t end = std::min(first + scaled_block, row.size());
    float largest = 0;
    for (std::size_t i = first; i < end; ++i)
      largest = std::max(largest, std::abs(static_cast<float>(row[i])));
    const float scale = std::max(largest * (1.F / 448), 0x1p-126F);
    for (std::size_t i = first; i < end; ++i) cast[i] = round_to(e4m3, row[i] * (1.F / scale)) * scale;
  }
  return cast;
}

// Both formulas: `weight(matrix, expert, row, column)` is what the product multiplies.
template <class Op, class Weight>
void formula(const Bound<Op>& c, Exact& exact, bool is_cast, const Weight& weight) {
  const std::int64_t topk = c.dim("topk"), d = c.dim("d"), inner = c.dim("inner");
  const double *x = exact.data("x"), *weights = exact.data("weights");
  const double* biases[] = {exact.data_if("bias1"), exact.data_if("bias2")};
  double* out = exact.data("out");
  const auto product = [&](int matrix, std::int64_t expert, const std::vector<double>& given,
                           std::int64_t n) {
    const std::vector<double> row = multiplied(given, is_cast && exact.steps() != f64);
    std::vector<double> result;
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = biases[matrix] ? biases[matrix][expert * n + j] : 0;
      for (std::size_t e = 0; e < row.size(); ++e)
        sum += row[e] * weight(matrix, expert, j, static_cast<std::int64_t>(e));
      result.push_back(exact.rounded(sum));
    }
    return result;
  };
  for (const RoutedPair& pair : pairs_of(c["experts"])) {
    const double* row = x + pair.token * d;
    const std::vector<double> h = product(0, pair.expert, {row, row + d}, 2 * inner);
    std::vector<double> units;
    for (std::int64_t j = 0; j < inner; ++j) units.push_back(exact.rounded(unit_formula(*c, h, j)));
    const std::vector<double> y = product(1, pair.expert, units, d);
    for (std::int64_t j = 0; j < d; ++j)
      out[pair.token * d + j] += weights[pair.token * topk + pair.choice] * y[j];
  }
}

void quantised_formula(const Bound<QuantisedMoe>& c, Exact& exact) {
  const tegula::Tensor stored[] = {exact["w1"], exact["w2"]};
  const std::vector<double> scales[] = {scales_of(exact["scales1"]), scales_of(exact["scales2"])};
  const std::int64_t rows[] = {2 * c.dim("inner"), c.dim("d")},
                     of_scale[] = {c.dim("of_scale1"), c.dim("of_scale2")},
                     blocks[] = {c.dim("blocks1"), c.dim("blocks2")};
  formula(c, exact, false, [&](int matrix, std::int64_t expert, std::int64_t row, std::int64_t e) {
    const double number = stored_weight(stored[matrix].select(0, expert), c->format, c->packed, row, e);
    const std::int64_t block = expert * blocks[matrix] + e / of_scale[matrix];
    const double own = (number - zero_of(c->format)) * scales[matrix][block * rows[matrix] + row];
    return exact.steps() == f64 ? own : round_to(c.type("x"), own);
  });
}

void scaled_formula(const Bound<ScaledMoe>& c, Exact& exact) {
  const auto w1 = exact.array("w1"), w2 = exact.array("w2"), of_1 = exact.array("scale1"),
             of_2 = exact.array("scale2");
  formula(c, exact, true, [&](int matrix, std::int64_t expert, std::int64_t row, std::int64_t e) {
    const auto &w = matrix == 0 ? w1 : w2, &scale = matrix == 0 ? of_1 : of_2;
    return w(expert, row, e) * scale(expert, row / scale_rows, e / scaled_block);
  });
}

template <class Op>
void add_biases(Schema<Op>& table) {
  table.in(&Op::bias1, "bias1", "groups 2*inner", floats, "added to the first products")
      .in(&Op::bias2, "bias2", "groups d", floats, "added to the second products");
}

template <class Op>
bool formats_fit(const Bound<Op>& c) {
  const bool is_i8 = c->format == WeightFormat::int8;
  return is_i8 == (c.type("w1") == i8) && is_i8 == (c.type("w2") == i8) &&
         scales_fit(c->format, c.type("scales1")) && c.type("scales1") == c.type("scales2");
}
bool rows_are_packed(const Bound<QuantisedMoe>& c) {
  return !c->packed || (bits_of(c->format) == 4 && c.dim("d") % 64 == 0 && c.dim("inner") % 64 == 0);
}

void add_weights(Schema<QuantisedMoe>& table) {
  using Op = QuantisedMoe;
  const char* bytes_1 =
      "format=int8 ? groups 2*inner d : format=ternary ? groups 2*inner d/4 : groups 2*inner d/2";
  const char* bytes_2 = "format=int8 ? groups d inner : format=ternary ? groups d inner/4 : groups d inner/2";
  table
      .in(&Op::scales1, "scales1", "groups blocks1 2*inner", one_of({f16, bf16, f32, u8, e4m3}),
          "factors of every block of weights of w1")
      .values(example_scales)
      .in(&Op::w1, "w1", bytes_1, one_of({u8, i8}),
          "matrix of each expert: the rows of gates, then those of values")
      .range("0", "256")
      .in(&Op::scales2, "scales2", "groups blocks2 d", same_as("scales1"),
          "factors of every block of weights of w2")
      .values(example_scales)
      .in(&Op::w2, "w2", bytes_2, same_as("w1"), "second matrix of each expert")
      .range("0", "256");
}
void add_rules(Schema<QuantisedMoe>& table) {
  using Op = QuantisedMoe;
  table.let("of_scale", "format=mxfp4 ? 32 : (format=nvfp4 ? 16 : block)")
      .let("of_scale1", "of_scale == 0 ? max(d,1) : of_scale")
      .let("of_scale2", "of_scale == 0 ? max(inner,1) : of_scale")
      .require("w1", formats_fit<Op>, "weights and scales of the format", "check format and scales")
      .require(
          "block", [](const Bound<Op>& c) { return group_fits(c->format, c->block); },
          "0, 16, 32 or a multiple of 64", "give scales of such blocks")
      .require("w1", "format=int8 ? 1 : (d%4 == 0 ? inner%4 == 0 : 0)", "weights that fill bytes",
               "add columns of zeros")
      .require("scales1", "blocks1 == ceildiv(d,of_scale1)", "a scale for every {of_scale1} weights",
               "check block and format")
      .require("scales2", "blocks2 == ceildiv(inner,of_scale2)", "a scale for every {of_scale2} weights",
               "check block and format")
      .require("w1", rows_are_packed, "4 bits, and a multiple of 64 weights in a row",
               "leave packed out, or add columns of zeros");
}

}  // namespace

const OperatorSchema& quantised_moe_schema() {
  using Op = QuantisedMoe;
  static const OperatorSchema table =
      Schema<Op>("quantised_moe", "a mixture of experts with weights of 8, 4 or 2 bits")
          .in(&Op::x, "x", "tokens d", one_of({bf16, f16}), "rows of tokens")
          .with(add_routing<Op>)
          .with(add_weights)
          .with(add_biases<Op>)
          .option(&Op::format, "format", "format of a weight before it is scaled")
          .option(&Op::packed, "packed", "w1 and w2 are in the order that packed_weights returns")
          .option(&Op::block, "block", "weights that share a scale; 32 for mxfp4, 16 for nvfp4",
                  between(0, 1 << 20, "0, 16, 32 or a multiple of 64", "give scales of such blocks"))
          .with(add_unit<Op>)
          .out(&Op::out, "out", "tokens d", same_as("x"),
               "sum of weights * (unit(x W1^T + bias1) W2^T + bias2)")
          .with(add_rules)
          .source("OpenAI 2025, gpt-oss; OCP Microscaling Formats (MX) 1.0, 2023")
          .no_gradient("its weights are quantised")
          .flops("6*tokens*topk*d*inner")
          .examples({{"int4",
                      "tokens=9 topk=2 d=128 groups=2 inner=64 blocks1=2 blocks2=1 block=64 format=int4 "
                      "packed weights:f32"},
                     {"mxfp4_oai",
                      "tokens=13 topk=2 d=64 groups=3 inner=32 blocks1=2 blocks2=1 unit=swiglu_oai "
                      "interleaved bias1 "
                      "bias2 scales1:u8 weights:f32"}})
          .measured(
              {{"gpt_oss_20b",
                "tokens=4096 topk=4 d=2880 groups=32 inner=2880 blocks1=90 blocks2=90 scales1:u8 packed "
                "unit=swiglu_oai interleaved bias1 bias2 weights:f32"}})
          .run(run_quantised, quantised_formula);
  return table;
}

const OperatorSchema& scaled_moe_schema() {
  using Op = ScaledMoe;
  static const OperatorSchema table =
      Schema<Op>("scaled_moe", "a mixture of experts with weights of 8 bits that have scales of 128 x 128")
          .in(&Op::x, "x", "tokens d", one_of({bf16, f16}), "rows of tokens")
          .with(add_routing<Op>)
          .in(&Op::w1, "w1", "groups 2*inner d", is(e4m3),
              "matrix of each expert: the rows of gates, then those of values")
          .in(&Op::scale1, "scale1", "groups (2*inner+127)/128 (d+127)/128", is(f32),
              "factors of the blocks of w1")
          .range("1", "9")
          .in(&Op::w2, "w2", "groups d inner", is(e4m3), "second matrix of each expert")
          .in(&Op::scale2, "scale2", "groups (d+127)/128 (inner+127)/128", is(f32),
              "factors of the blocks of w2")
          .range("1", "9")
          .with(add_biases<Op>)
          .with(add_unit<Op>)
          .out(&Op::out, "out", "tokens d", same_as("x"),
               "sum of weights * (unit(x w1^T + bias1) w2^T + bias2)")
          .source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report")
          .no_gradient("its weights are quantised")
          .flops("6*tokens*topk*d*inner")
          .examples({{"ragged", "tokens=13 topk=2 d=140 groups=3 inner=72 weights:f32"},
                     {"biases", "tokens=5 topk=1 d=128 groups=2 inner=64 bias1 bias2 weights:f32"}})
          .measured({{"deepseek", "tokens=4096 topk=8 d=7168 groups=32 inner=2048 weights:f32"}})
          .run(run_scaled, scaled_formula);
  return table;
}

}  // namespace tegula::ops
