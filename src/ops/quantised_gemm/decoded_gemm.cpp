#include "ops/quantised_gemm/decoded_gemm.hpp"

#include "ops/pieces/matrices.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/product_plan.hpp"
#include "ops/products/epilogue.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/matrix_product.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/quantised_gemm/weight_tile.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// What a product is prepared from. Scales of whole rows become factors of the product's columns, as is the
// scale of all weights. Powers of two become numbers of e4m3 by a factor of their row.
struct DecodedOperands {
  QuantisedWeights weights = {};
  DType type = bf16;               // of the decoded weights
  std::optional<DType> rows = {};  // of a, where it is converted to that type
  bool tensor_scale = false;
  bool has_factors_of_rows() const { return type == e4m3 && weights.group > 0; }
  bool has_factors() const { return weights.group == 0 || tensor_scale || has_factors_of_rows(); }
  auto fields() const {
    return std::tuple(weights, type, labelled("rows", rows), labelled("whole", tensor_scale));
  }
};

constexpr int rows_decoded = 64, columns_decoded = 128, rows_converted = 16, columns_converted = 512,
              factors_formed = 256, rows_reduced = 32, groups_reduced = 64;
// What factors of rows leave of the largest scale: the largest weight becomes 384, where e4m3 has 448.
constexpr float largest_scale = 64;
// Tiles of a CPU have 64 rows: with fewer than so many, writing the matrix costs what decoding it again does.
constexpr int rows_worth_decoding_on_cpu = 256;

// The exponent of a factor is at least one that makes it and its inverse normal numbers.
Tensor form_row_factors(const QuantisedWeights& w, const QuantisedMatrix& matrix, const Dim& n,
                        const Dim& groups) {
  constexpr float least_exponent = 7;
  Tensor result = workspace("row_factors", {n}, f32);
  grid(ceildiv(n, rows_reduced), [&](Index x) {
    Fragment most({rows_reduced}, f32, least_exponent), factors({rows_reduced}, f32);
    serial(ceildiv(groups, groups_reduced), [&](Index step) {
      Expr row = x * rows_reduced, group = step * groups_reduced;
      Fragment scales = w.by_group ? load(matrix.scales.at(group, row), {groups_reduced, rows_reduced})
                                   : load(matrix.scales.at(row, group), {rows_reduced, groups_reduced}),
               exponents = map(scales, [&](Index i, Index j) { return f32(scales(i, j)); });
      reduce_max(exponents, most, w.by_group ? 0 : 1);
    });
    parallel(factors, [&](Index i) { factors(i) = e8m0(u32(most(i))) * (1 / largest_scale); });
    copy(factors, result.at(x * rows_reduced));
  });
  return result;
}

void decode_weights(const DecodedOperands& c, const QuantisedMatrix& matrix, const Dim& n, const Dim& k,
                    const std::optional<Tensor>& row_factors) {
  QuantisedTile t{.n = rows_decoded, .k = columns_decoded};
  fit_step(t, c.weights);
  Tensor decoded = output("decoded", {n, k}, c.type);
  grid(ceildiv(n, t.n), ceildiv(k, t.k), [&](Index x, Index y) {
    const bool scaled = c.weights.group > 0;
    const WeightTile own(c.weights, matrix, x * t.n, y * t.k, {t.n, t.k}, scaled);
    Fragment weights({t.n, t.k}, f32);
    parallel(weights, [&](Index i, Index j) {
      Expr number = own.number(i, j, true);
      weights(i, j) = scaled ? number * own.scale(i, j) : number;
    });
    if (row_factors) {
      Fragment factors = load(row_factors->at(x * t.n), {t.n});
      parallel(factors, [&](Index i) { factors(i) = 1 / factors(i); });
      multiply_along(weights, 0, factors);
    }
    copy(weights, decoded.at(x * t.n, y * t.k));
  });
}

void convert_rows(const DecodedOperands& c, const Dim& k) {
  Dim rows("rows");
  Tensor a = input("a", {rows, k}, *c.rows), converted = output("converted", {rows, k}, c.type);
  grid(ceildiv(rows, rows_converted), ceildiv(k, columns_converted), [&](Index x, Index y) {
    Fragment own = load(a.at(x * rows_converted, y * columns_converted), {rows_converted, columns_converted}),
             wide = map(own, [&](Index i, Index j) { return f32(own(i, j)); });
    copy(wide, converted.at(x * rows_converted, y * columns_converted));
  });
}

void form_factors(const DecodedOperands& c, const QuantisedMatrix& matrix, const Dim& n,
                  const std::optional<Tensor>& row_factors) {
  const bool of_rows = c.weights.group == 0;
  const Tensor whole = c.tensor_scale ? input("tensor_scale", {1}, f32) : matrix.scales;
  Tensor factors = output("factors", {n}, f32);
  grid(ceildiv(n, factors_formed), [&](Index x) {
    Fragment own({factors_formed}, f32, 1);
    if (row_factors) copy(row_factors->at(x * factors_formed), own);
    if (of_rows) {
      Fragment scales({factors_formed}, matrix.scales.type());
      copy((c.weights.by_group ? matrix.scales.slice(0) : matrix.scales.slice(all, 0)).at(x * factors_formed),
           scales);
      parallel(own, [&](Index i) { own(i) = scale_of(scales(i), c.weights.scale); });
    }
    if (c.tensor_scale) parallel(own, [&](Index i) { own(i) *= whole(0); });
    copy(own, factors.at(x * factors_formed));
  });
}

Kernel decoded_operands(const DecodedOperands& c) {
  return kernel(instance_name("decoded_operands", c), [&] {
    Dim n("n"), k("k"), groups("groups");
    const QuantisedMatrix matrix =
        with_whole_pieces(c.weights, QuantisedInputs(c.weights, {}, n, k, groups).all);
    std::optional<Tensor> row_factors;
    if (c.has_factors_of_rows()) row_factors.emplace(form_row_factors(c.weights, matrix, n, groups));
    decode_weights(c, matrix, n, k, row_factors);
    if (c.rows) convert_rows(c, k);
    if (c.has_factors()) form_factors(c, matrix, n, row_factors);
  });
}

TensorRef as_batch(const TensorRef& matrix) { return matrix.reshape({1, matrix.size(0), matrix.size(1)}); }

}  // namespace

bool are_weights_of_8_bits(const Bound<QuantisedGemm>& c) {
  const bool is_of_rows = c.dim("groups") == 1 && bits_of(c->format) <= 4 && !c.has("zeros");
  return c.type("a") == e4m3 && (c->format == WeightFormat::mxfp4 || is_of_rows);
}

bool is_worth_decoding(const Bound<QuantisedGemm>& c) {
  constexpr std::int64_t most_bytes = bytes_of_partials;
  const bool is_converted = c.type("a").bits() == 8;
  const std::int64_t bytes = 2 * c.dim("k") * (c.dim("n") + (is_converted ? c.dim("rows") : 0));
  if (c->splits > 0 || bytes > most_bytes) return false;
  if (!c.on_gpu()) return c.dim("rows") >= rows_worth_decoding_on_cpu;
  const GpuDecoding& table = gpu_table.decoding;
  return c.dim("rows") >= (is_converted                      ? table.rows_of_8_bits
                           : c->format == WeightFormat::int8 ? table.rows_of_16_bits_by_8
                                                             : table.rows_of_16_bits);
}

namespace {

// The product of rows with the decoded matrix.
void multiply_decoded(const Bound<QuantisedGemm>& c, const TensorRef& rows, const TensorRef& decoded,
                      const std::optional<TensorRef>& factors, Launch& launch) {
  const TensorRef a = as_batch(rows), b = as_batch(decoded), out = as_batch(c.formed("out"));
  GemmKernel kernel{.type = b.dtype, .out = out.dtype, .transpose_b = true};
  kernel.compute = c.on_gpu() ? b.dtype : multiplied_type(b.dtype, false);
  if (c.on_gpu())
    kernel.pad_a = starts_off_pieces(a), kernel.pad_b = starts_off_pieces(b),
    kernel.pad_out = starts_off_pieces(out);
  kernel.epilogue = {
      .bias = c.type_if("bias"), .row_scale = c.has("row_scale"), .column_scale = factors.has_value()};
  const ProductProblem problem{.m = c.dim("rows"),
                               .n = c.dim("n"),
                               .k = c.dim("k"),
                               .processors = planned_gpu_processors(c.call()),
                               .threads = planned_threads(c.call()),
                               .stored_bytes = kernel.pad_out ? 4 : out.dtype.bytes()};
  const ProductPlan plan = c.on_gpu() ? plan_product_on_gpu(problem, b.dtype, {}) : plan_product(problem, {});
  kernel.tiles = plan.tiles, kernel.stages = plan.stages;
  launch(kernel, gemm_kernel, {{"a", a}, {"b", b}, {"column_scale", factors.value_or(b)}, {"out", out}});
}

}  // namespace

void launch_decoded(const Bound<QuantisedGemm>& c, const QuantisedWeights& weights,
                    const StoredWeights& stored, Launch& launch) {
  const std::int64_t n = c.dim("n"), k = c.dim("k");
  const bool is_of_8_bits = are_weights_of_8_bits(c) && has_copy_engine(c.call());
  const DType compute = is_of_8_bits ? e4m3 : rounded_weights(c.type("a"));
  DecodedOperands operands{.weights = weights, .type = compute, .tensor_scale = c.has("tensor_scale")};
  if (c.type("a") != compute) operands.rows = c.type("a");
  const tegula::Tensor decoded = launch.scratch({n, k}, compute),
                       converted = launch.scratch({operands.rows ? c.dim("rows") : 0, k}, compute),
                       factors = launch.scratch({operands.has_factors() ? n : 0}, f32);
  launch(operands, decoded_operands,
         {{"b", stored.b},
          {"scales", stored.scales},
          {"zeros", stored.zeros},
          {"decoded", decoded},
          {"converted", converted},
          {"factors", factors}});
  multiply_decoded(c, operands.rows ? converted.ref() : c.formed("a"), decoded,
                   operands.has_factors() ? std::optional(factors.ref()) : std::nullopt, launch);
}

}  // namespace tegula::ops
