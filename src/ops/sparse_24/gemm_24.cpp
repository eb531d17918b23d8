#include "tegula/ops/gemm_24.hpp"

#include <span>

#include "ops/pieces/matrices.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/product_plan.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/sums_of_8_bits.hpp"
#include "ops/sparse_24/codes.hpp"
#include "ops/sparse_24/gemm_24_program.hpp"

namespace tegula::ops {

namespace {

// Measured costs for 16-bit operands: large tiles have steps of 64 along k, so that four of them fit in a
// ring.
constexpr TileCost wide_tiles[] = {{256, 192, 128, 0.122, 0.122}, {128, 256, 128, 0.14, 0.14},
                                   {192, 192, 128, 0.14, 0.14},   {128, 160, 256, 0.16, 0.16},
                                   {128, 128, 256, 0.176, 0.176}, {64, 128, 256, 0.28, 0.28},
                                   {64, 64, 256, 0.45, 0.45},     {64, 32, 256, 0.75, 0.75}};
constexpr int most_sums_of_long_steps = 128 * 160;
constexpr TileCost narrow_tiles[] = {
    {128, 128, 128, 0.12, 0.12}, {64, 128, 128, 0.2, 0.2}, {64, 64, 128, 0.3, 0.3}, {64, 32, 128, 0.5, 0.5}};

// Whether there are sparse products for such operands; the interpreter knows what metadata mean.
bool multiplies_sparse(const BoundCall& c, bool along_k, DType type) {
  if (c.target() == Target::interpreter()) return true;
  return type.bits() == 16 ? c.on_gpu() : along_k && has_copy_engine(c);
}

// The type of tiles of the dense matrix.
DType dense_type(const BoundCall& c, DType type) {
  return type == i8 ? i8 : product_tile_type(c, type, false);
}

void plan_tiles(const BoundCall& c, const GemmTiles& given, SparseGemmInstance& t) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  if (!multiplies_sparse(c, t.transpose_b, t.type)) t.dense = dense_type(c, t.type);
  const bool by_warps = c.on_gpu() && (t.dense || !has_copy_engine(c));  // not by warp groups
  ProductTile tile{64, 64};
  t.tiles = given;
  if (t.dense && !c.on_gpu() && t.type != i8) {
    t.tiles =
        plan_product({.m = m, .n = n, .k = k, .threads = planned_threads(c)}, {given.m, given.n, given.k, 1})
            .tiles;
  } else if (c.on_gpu()) {
    const bool narrow = t.type.bits() == 8 || by_warps;
    tile = best_tile(narrow ? std::span<const TileCost>(narrow_tiles) : wide_tiles, {1, m, n, k},
                     t.type.bytes(), planned_gpu_processors(c));
  }
  if (t.tiles.m == 0) t.tiles.m = tile.m;
  if (t.tiles.n == 0) t.tiles.n = tile.n;
  const bool is_large = t.type.bits() == 16 && t.tiles.m * t.tiles.n > most_sums_of_long_steps;
  if (t.tiles.k == 0) t.tiles.k = by_warps || (is_large && c.on_gpu()) ? 64 : 128;
  t.tiles.splits = 1;
  t.by_threads = c.on_gpu() && !by_warps && k % columns_of_piece == 0 && t.tiles.k == 64;
}

SparseGemmInstance sparse_gemm_plan(const Bound<Gemm24>& c) {
  SparseGemmInstance t{
      .type = c.type("b"),
      .out = c.type("out"),
      .transpose_b = c->transpose_b,
      .transpose_out = c->transpose_out,
      .epilogue = {.scaled = c->scale != 1, .bias = c.type_if("bias"), .activation = c->activation}};
  plan_tiles(c.call(), c->tiles, t);
  return t;
}

// A block a thread, on a CPU; with several, a thread keeps what it expanded.
template <class Op>
void note_expansion(const Bound<Op>& c, const GemmTiles& t, Launch& launch) {
  const auto blocks = [](std::int64_t extent, int of_tile) { return (extent + of_tile - 1) / of_tile; };
  if (c.on_gpu() || blocks(c.dim("m"), t.m) * blocks(c.dim("n"), t.n) > planned_threads(c.call())) return;
  launch.note([] {
    return std::string(
        "plan: every block expands its rows of the sparse matrix, which takes longer than its products; more "
        "columns share them");
  });
}

SparseGemmInstance integer_plan(const Bound<IntegerGemm24>& c) {
  SparseGemmInstance t{.type = i8, .out = i32, .transpose_b = true};
  plan_tiles(c.call(), {}, t);
  return t;
}

// Rows that begin off 16 bytes. Threads load metadata wherever these begin.
template <class Op>
void plan_padding(const Bound<Op>& c, SparseGemmInstance& t) {
  if (!has_copy_engine(c.call()) || t.dense) return;
  t.pad_left =
      starts_off_pieces(c.formed("values")) || (!t.by_threads && starts_off_pieces(c.formed("metadata")));
  t.pad_b = starts_off_pieces(c.formed("b"));
  t.pad_out = starts_off_pieces(c.formed("out"));
}

template <class Op, SparseGemmInstance (*plan)(const Bound<Op>&)>
void run(const Bound<Op>& c, Launch& launch) {
  SparseGemmInstance t = plan(c);
  plan_padding(c, t);
  if (t.pad_left || t.pad_b || t.pad_out) note_padding(launch);
  note_expansion(c, t.tiles, launch);
  launch(t, sparse_gemm_program);
}

// A row of the sparse matrix.
std::vector<double> expanded(const double* values, const std::uint8_t* metadata, std::int64_t i,
                             std::int64_t k) {
  std::vector<double> row(static_cast<std::size_t>(k));
  for (std::int64_t q = 0; q < k / 4; ++q) {
    const int code = metadata[i * (k / 8) + q / 2] >> q % 2 * 4 & 15, known = code == 0 ? 4 : code;
    row[static_cast<std::size_t>(4 * q + (known & 3))] = values[i * (k / 2) + 2 * q];
    row[static_cast<std::size_t>(4 * q + (known >> 2))] = values[i * (k / 2) + 2 * q + 1];
  }
  return row;
}

void formula(const Bound<Gemm24>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  const bool as_tensor_cores = exact.steps() != f64 && c.type("b").bits() == 8 && c.type("b").is_floating();
  const Tensor values = exact["values"].to(f64), other = exact["b"].to(f64);
  const double* b = other.data_as<double>();
  const auto* metadata = exact["metadata"].data_as<std::uint8_t>();
  const double* bias = exact.data_if("bias");
  double* out = exact.data("out");
  for (std::int64_t i = 0; i < m; ++i) {
    const std::vector<double> row = expanded(values.data_as<double>(), metadata, i, k);
    for (std::int64_t j = 0; j < n; ++j) {
      const double sum = sum_of_8_bits(k, as_tensor_cores, [&](std::int64_t e) {
        return row[static_cast<std::size_t>(e)] * b[c->transpose_b ? j * k + e : e * n + j];
      });
      const double added = bias ? bias[c->transpose_out ? i : j] : 0;
      const std::int64_t at = c->transpose_out ? j * m + i : i * n + j;
      out[at] = activate(c->activation, c->scale * sum + added);
    }
  }
}

void integer_formula(const Bound<IntegerGemm24>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  const auto* metadata = exact["metadata"].data_as<std::uint8_t>();
  const Tensor values = exact["values"].to(f64);
  const auto* b = exact["b"].data_as<std::int8_t>();
  auto* out = exact["out"].data_as<std::int32_t>();
  for (std::int64_t i = 0; i < m; ++i) {
    const std::vector<double> row = expanded(values.data_as<double>(), metadata, i, k);
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t e = 0; e < k; ++e) sum += row[static_cast<std::size_t>(e)] * b[j * k + e];
      out[i * n + j] = static_cast<std::int32_t>(sum);
    }
  }
}

template <class Op>
void add_metadata(Schema<Op>& table) {
  table.in(&Op::metadata, "metadata", "m k/8", is(u8), "positions of the values, as compress_24 writes them")
      .values([](const Shape& shape, DType, std::uint64_t seed, const auto&) {
        return random_metadata(shape, seed);
      });
}

std::vector<Example> sparse_gemm_examples() {
  return {{"ragged_bf16", "m=70 n=40 k=200 bf16 bias"},
          {"whole_f16", "m=130 n=72 k=256 f16 transpose_b activation=relu out_dtype=f32 tile_k=64"},
          {"linear_bf16", "m=72 n=21 k=136 bf16 transpose_b transpose_out bias:f32"},
          {"e4m3", "m=66 n=40 k=256 e4m3 transpose_b scale=0.25"},
          {"e5m2", "m=20 n=40 k=72 e5m2 out_dtype=f32"},
          {"i8", "m=20 n=24 k=64 i8 transpose_b scale=0.01 bias:f32"},
          {"odd_rows_bf16", "m=70 n=37 k=264 bf16 bias"},
          {"odd_columns_of_result_f16",
           "m=67 n=40 k=136 f16 transpose_b transpose_out bias:f32 activation=silu"}};
}

std::vector<CallMap> sparse_gemm_maps() {
  return {{"shapes",
           "k=4096 bf16 transpose_b",
           {"m=64", "m=128", "m=256", "m=512", "m=1000", "m=1024", "m=4096", "m=4097", "m=8192"},
           {"n=16", "n=64", "n=128", "n=512", "n=1024", "n=4096", "n=4097", "n=8192"}},
          {"types",
           "m=4096 n=4096 k=4096",
           {"bf16", "f16", "e4m3", "e5m2", "i8"},
           {"transpose_b", "", "transpose_b transpose_out", "transpose_b k=4104", "transpose_b k=14336",
            "transpose_b bias:f32 activation=gelu"}}};
}

}  // namespace

const OperatorSchema& gemm_24_schema() {
  using Op = Gemm24;
  static const OperatorSchema table =
      Schema<Op>("gemm_24", "product of a matrix with two values of each four along its rows")
          .in(&Op::values, "values", "m k/2", types_of_24, "the values of the left matrix")
          .with(add_metadata<Op>)
          .in(&Op::b, "b", "transpose_b ? n k : k n", same_as("values"), "right matrix")
          .remedy("check transpose_b")
          .in(&Op::bias, "bias", "transpose_out ? m : n", floats, "added to every row of the result")
          .option(&Op::transpose_b, "transpose_b", "b is [n, k]")
          .option(&Op::transpose_out, "transpose_out", "the result is [n, m]")
          .with(add_activation<Op>)
          .with(add_factor<Op>)
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .with(add_product_tiles<Op>)
          .out(&Op::out, "out", "transpose_out ? n m : m n", chosen_by("out_dtype", floats.types, "b", bf16),
               "activation(scale * a * b + bias)")
          .require("b", "k%8 == 0", "a multiple of 8 along k", "pad both matrices with zeros along k")
          .require("tile_k", "tile_k%8 == 0", "a multiple of 8", "leave it out")
          .require("splits", "splits <= 1", "no splits of k", "leave it out")
          .source("Mishra et al. 2021, Accelerating Sparse Deep Neural Networks")
          .no_gradient("gradients of a pruned matrix are dense: multiply them by gemm")
          .flops("2*m*n*k")
          .examples(sparse_gemm_examples())
          .measured({{"8192_bf16", "m=8192 n=8192 k=8192 bf16 transpose_b"},
                     {"8192_e4m3", "m=8192 n=8192 k=8192 e4m3 transpose_b"}})
          .maps(sparse_gemm_maps())
          .run(run<Gemm24, sparse_gemm_plan>, formula);
  return table;
}

const OperatorSchema& integer_gemm_24_schema() {
  using Op = IntegerGemm24;
  static const OperatorSchema table =
      Schema<Op>("integer_gemm_24",
                 "product of 8-bit integers of which two of each four are given, exact in 32 bits")
          .in(&Op::values, "values", "m k/2", is(i8), "the values of the left matrix")
          .range("-128", "128")
          .with(add_metadata<Op>)
          .in(&Op::b, "b", "n k", is(i8), "right matrix, transposed")
          .range("-128", "128")
          .out(&Op::out, "out", "m n", is(i32), "a * b^T")
          .require("b", "k%8 == 0", "a multiple of 8 along k", "pad both matrices with zeros along k")
          .source("Mishra et al. 2021, Accelerating Sparse Deep Neural Networks")
          .no_gradient("its operands are integers")
          .flops("2*m*n*k")
          .examples({{"ragged", "m=66 n=48 k=392"},
                     {"whole_pieces", "m=130 n=40 k=256"},
                     {"odd_rows", "m=66 n=47 k=256"}})
          .measured({{"8192", "m=8192 n=8192 k=8192"}})
          .run(run<IntegerGemm24, integer_plan>, integer_formula);
  return table;
}

}  // namespace tegula::ops
