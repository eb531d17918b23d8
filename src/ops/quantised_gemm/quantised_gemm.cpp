#include "tegula/ops/quantised_gemm.hpp"

#include <array>

#include "ops/pieces/matrices.hpp"
#include "ops/products/epilogue.hpp"
#include "ops/products/group_padding.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/quantised_gemm/cases.hpp"
#include "ops/quantised_gemm/decoded_gemm.hpp"
#include "ops/quantised_gemm/vector.hpp"
#include "ops/quantised_gemm/weight_rules.hpp"
#include "ops/quantised_gemm/weights.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"
#include "ops/schema/sums_of_8_bits.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = bf16, compute = f32, out = bf16;
  QuantisedWeights weights = {};
  std::optional<DType> bias = {};
  bool tensor_scale = false, row_scale = false;
  bool pad_out = false;  // results are stored in whole pieces, and written last
  QuantisedTile tile = {};
  int splits = 1;
  auto fields() const {
    return std::tuple(type, labelled("tiles", compute), labelled("out", out), weights, labelled("bias", bias),
                      labelled("whole", tensor_scale), tile, labelled("splits", splits),
                      labelled("of_rows", row_scale), labelled("pad_out", pad_out));
  }
};

// Extents of a block that adds the split sums.
constexpr int summed_rows = 16, summed_weights = 32;
constexpr int few_columns = 64;  // of weights, in tiles of few rows
constexpr int piece = 4;         // numbers that the copy engine takes at least, f32

struct Program {
  const Instance& c;
  const QuantisedTile& t = c.tile;
  Dim rows{"rows"}, n{"n"}, k{"k"}, groups{"groups"};
  Tensor a = input("a", {rows, k}, c.type);
  QuantisedMatrix given = QuantisedInputs(c.weights, {}, n, k, groups).all;
  Tensor tensor_scale = c.tensor_scale ? input("tensor_scale", {1}, f32) : a;
  Tensor row_scale = c.row_scale ? input("row_scale", {rows}, f32) : a;
  Tensor bias = c.bias ? input("bias", {n}, *c.bias) : a;
  Tensor out = output("out", {rows, n}, c.out);
  Tensor stored = stored_rows(out, c.pad_out);
  QuantisedMatrix matrix = with_whole_pieces(c.weights, given);
  QuantisedProduct product{c.weights, c.tile, c.compute};

  void store(Fragment& sum, const Expr& row, const Expr& column) const {
    product.finish(sum, matrix, column);
    if (c.tensor_scale) {
      Expr whole = tensor_scale(0);
      parallel(sum, [&](Index i, Index j) { sum(i, j) *= whole; });
    }
    if (c.row_scale) multiply_along(sum, 1, load(row_scale.at(row), {sum.extent(1)}, f32));
    if (c.bias) add_along(sum, 0, load(bias.at(column), {sum.extent(0)}, f32));
    copy(sum.T(), stored.at(row, column));
  }

  void whole() const {
    grid(ceildiv(n, t.n), ceildiv(rows, t.m),
         {.order = Order::grouped(8), .blocks_per_processor = t.blocks()}, [&](Index x, Index y) {
           Fragment sum({t.n, t.m}, f32, 0);
           product.multiply(sum, a, matrix, y * t.m, x * t.n, range(0, ceildiv(k, t.k)));
           store(sum, y * t.m, x * t.n);
         });
    if (c.pad_out) write_matrices(stored, out);
  }

  // Blocks of a first grid leave the sums of splits of k, [n, rows] as they have them, and those of a second
  // add them in order.
  void in_splits() const {
    Tensor partials = workspace("parts", {c.splits, n, ceildiv(rows, piece) * piece}, f32);
    grid(ceildiv(n, t.n), ceildiv(rows, t.m), c.splits, {.blocks_per_processor = t.blocks()},
         [&](Index x, Index y, Index split) {
           Expr steps = ceildiv(k, t.k);
           Fragment sum({t.n, t.m}, f32, 0);
           product.multiply(sum, a, matrix, y * t.m, x * t.n,
                            range(steps * split / c.splits, steps * (split + 1) / c.splits));
           copy(sum, partials.slice(split).at(x * t.n, y * t.m));
         });
    grid(ceildiv(n, summed_weights), ceildiv(rows, summed_rows), [&](Index x, Index y) {
      Fragment sum({summed_weights, summed_rows}, f32, 0);
      for (int split = 0; split < c.splits; ++split) {
        Fragment added = load(partials.slice(split).at(x * summed_weights, y * summed_rows),
                              {summed_weights, summed_rows});
        parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i, j); });
      }
      store(sum, y * summed_rows, x * summed_weights);
    });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("quantised_gemm", c), [&] {
    const Program own{c};
    c.splits > 1 ? own.in_splits() : own.whole();
  });
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Splits of k where few rows leave processors with less blocks than they have room for: those that fill one
// or two rounds best.
int splits_of(const Bound<QuantisedGemm>& c, const Instance& t) {
  constexpr int usual_blocks = 2;
  constexpr std::int64_t least_steps = 4, most_splits = 32, rounds = 2;
  if (c->splits > 0) return c->splits;
  if (!c.on_gpu() || !t.tile.has_few_rows()) return 1;
  const std::int64_t of_processor = t.tile.groups ? 1 : std::max(t.tile.blocks(), usual_blocks);
  const std::int64_t room = of_processor * planned_gpu_processors(c.call());
  const std::int64_t blocks =
      std::max<std::int64_t>(1, ceil_div(c.dim("n"), t.tile.n) * ceil_div(c.dim("rows"), t.tile.m));
  const std::int64_t most =
      std::min({rounds * room / blocks, ceil_div(c.dim("k"), t.tile.k) / least_steps, most_splits});
  std::int64_t best = 1;
  double fullest = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    const std::int64_t all = blocks * splits;
    const double full = static_cast<double>(all) / static_cast<double>(ceil_div(all, room) * room);
    if (full > fullest + 0.03) best = splits, fullest = full;
  }
  return static_cast<int>(best);
}

Instance instance_of(const Bound<QuantisedGemm>& c) {
  Instance t{.type = c.type("a"), .out = c.type("out")};
  t.compute = multiplied_type(rounded_weights(t.type), c.on_gpu());
  t.bias = c.type_if("bias"), t.tensor_scale = c.has("tensor_scale"), t.row_scale = c.has("row_scale");
  QuantisedWeights& w = t.weights;
  w.format = c->format, w.scale = c.type("scales"), w.zeros = c.type_if("zeros"), w.packed = c->packed;
  w.group = c.small_dim("groups") == 1 ? 0 : c.small_dim("of_scale");
  w.by_group = !lies_along_rows(c["scales"]);
  w.zeros_by_group = c.has("zeros") && !lies_along_rows(c["zeros"]);
  return t;
}

// Warp groups that share the steps of a tile of few rows, as measured. Decoding bounds few rows, so that four
// gain where steps are many; with more rows two do, if blocks that have a processor each make one round. Rows
// that the producer converts come too slowly.
std::optional<int> groups_of(const Bound<QuantisedGemm>& c, const Instance& t) {
  constexpr std::int64_t many_columns = 4096;
  if (!t.tile.has_few_rows() || t.type != t.compute || !has_copy_engine(c.call())) return {};
  const std::int64_t blocks = ceil_div(c.dim("n"), t.tile.n) * ceil_div(c.dim("rows"), t.tile.m),
                     processors = planned_gpu_processors(c.call());
  const bool is_long = t.weights.bits() == 8 || is_e2m1(t.weights.format), one_round = blocks <= processors,
             fills = one_round && 2 * blocks > processors;
  switch (t.tile.m) {
    case 16:
      return t.weights.bits() == 8 || c.dim("k") < many_columns ? 2 : 4;
    case 32:
      return is_long || 2 * blocks <= processors ? 2 : 4;
    case 64:
      return one_round ? std::optional(2) : std::nullopt;
    case 96:
      return t.weights.bits() == 8 || (one_round && is_long) ? std::optional(2) : std::nullopt;
    default:
      return fills ? std::optional(2) : std::nullopt;
  }
}

// The least of the tiles of few rows that has all rows; up to twice as many as the largest has, that or one
// of many rows.
QuantisedTile tile_on_gpu(const Bound<QuantisedGemm>& c) {
  constexpr std::array few{16, 32, 64, 96, 128};
  const std::int64_t rows = c.dim("rows");
  for (const int m : few)
    if (rows <= m) return quantised_tile(m, few_columns);
  Candidates<TileCost, std::size(gpu_table.quantised) + 1> tiles;
  if (rows <= 2 * few.back()) tiles.add({few.back(), few_columns, 256, 0.5, 0.5});
  for (const TileCost& tile : gpu_table.quantised) tiles.add(tile);
  const ProductTile tile =
      best_tile(tiles, {1, rows, c.dim("n"), c.dim("k")}, 1, planned_gpu_processors(c.call()));
  return quantised_tile(tile.m, tile.n);
}

// The least rows of a tile of a CPU that need no more tiles: what is missing is multiplied, too. Operands of
// bf16 have half as many bytes where there are instructions for their products.
int rows_on_cpu(std::int64_t rows, DType rounded) {
  constexpr int unit = 16;
  const int most = rounded == bf16 ? 128 : 64;
  const std::int64_t tiles = std::max<std::int64_t>(ceil_div(rows, most), 1);
  return static_cast<int>(std::max<std::int64_t>(ceil_div(ceil_div(rows, tiles), unit), 1)) * unit;
}

void plan_tiles(const Bound<QuantisedGemm>& c, Instance& t) {
  t.tile.m = rows_on_cpu(c.dim("rows"), rounded_weights(t.type));
  if (c.on_gpu()) {
    t.tile = tile_on_gpu(c);
    t.tile.groups = groups_of(c, t);
    t.tile.k *= t.tile.parts();
  }
  fit_step(t.tile, t.weights);
  t.splits = splits_of(c, t);
  // Threads would store the results of many rows one by one, since these lie across the columns of a tile.
  constexpr int many_rows = 128;
  t.pad_out = has_copy_engine(c.call()) && t.tile.m >= many_rows && t.splits == 1 &&
              starts_off_pieces(c.formed("out"));
}

// Rows that each multiply all weights: a CPU takes longer to decode weights for a tile than to multiply one
// row with them as they are, which reads them again. Floats of 4 bits take longer to decode.
std::int64_t most_vectors(const Bound<QuantisedGemm>& c) {
  constexpr std::int64_t bits_read = 16, of_floats = 8;
  if (c.on_gpu()) return 1;
  return is_e2m1(c->format) ? of_floats : bits_read / bits_of(c->format);
}

// Of few rows, on a CPU.
void note_decoding(const Bound<QuantisedGemm>& c, Launch& launch) {
  constexpr std::int64_t few_rows = 32;
  if (c.on_gpu() || c.dim("rows") > few_rows) return;
  launch.note([&] {
    return fmt::format(
        "plan: decoding a weight takes longer than its products with {} row{}; more rows in a call share it",
        c.dim("rows"), c.dim("rows") == 1 ? "" : "s");
  });
}

void launch_vectors(const Bound<QuantisedGemm>& c, const QuantisedVector& vector, const StoredWeights& stored,
                    Launch& launch) {
  const TensorRef a = c.formed("a"), out = c.formed("out");
  for (std::int64_t row = 0; row < c.dim("rows"); ++row)
    launch(vector, quantised_vector_program,
           {{"a", a.slice(0, row, row + 1)},
            {"b", stored.b},
            {"scales", stored.scales},
            {"zeros", stored.zeros},
            {"row_scale", c.has("row_scale") ? c.formed("row_scale").slice(0, row, row + 1) : a},
            {"out", out.slice(0, row, row + 1)}});
}

void run(const Bound<QuantisedGemm>& c, Launch& launch) {
  Instance t = instance_of(c);
  QuantisedWeights& w = t.weights;
  const bool is_vector = c.dim("rows") <= most_vectors(c) && c->splits == 0;
  const TensorRef b = stored_elements(c["b"], w, is_vector && !c.on_gpu()),
                  scales = turned(c["scales"], !w.by_group),
                  zeros = c.has("zeros") ? turned(c["zeros"], !w.zeros_by_group) : scales;
  if (is_vector && takes_vectors(w, c.on_gpu())) {
    QuantisedVector vector{t.type, t.out, w, t.bias, t.tensor_scale, t.row_scale, !c.on_gpu()};
    if (vector.on_cpu) vector.step = vector_step(b.shape.back());
    return launch_vectors(c, vector, {b, scales, zeros}, launch);
  }
  pad_numbers(w, scales, zeros, launch);
  if (is_worth_decoding(c)) return launch_decoded(c, w, {b, scales, zeros}, launch);
  plan_tiles(c, t);
  note_decoding(c, launch);
  launch(t, program, {{"b", b}, {"scales", scales}, {"zeros", zeros}});
}

void formula(const Bound<QuantisedGemm>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), n = c.dim("n"), k = c.dim("k");
  const std::vector<double> a = exact["a"].values<double>();  // of integers too
  const auto out = exact.array("out");
  const std::vector<double> scales = scales_of(exact["scales"]);
  const double *zeros = exact.data_if("zeros"), *bias = exact.data_if("bias"),
               *whole = exact.data_if("tensor_scale"), *of_row = exact.data_if("row_scale");
  const double zero = zero_of(c->format);
  const bool of_8_bits = exact.steps() != f64 && are_weights_of_8_bits(c);
  const tegula::Tensor& b = exact["b"];
  std::vector<double> weights(static_cast<std::size_t>(k));
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t e = 0; e < k; ++e) {
      const std::int64_t group = e / c.dim("of_scale") * n + j;
      const double number = stored_weight(b, c->format, c->packed, j, e) - (zeros ? zeros[group] : zero);
      const double weight = number * scales[group];
      weights[e] = exact.steps() == f64 ? weight : round_to(rounded_weights(c.type("a")), weight);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      const double* row = &a[static_cast<std::size_t>(i * k)];
      const double sum = sum_of_8_bits(k, of_8_bits, [&](std::int64_t e) { return row[e] * weights[e]; });
      out(i, j) = sum * (whole ? *whole : 1) * (of_row ? of_row[i] : 1) + (bias ? bias[j] : 0);
    }
  }
}

}  // namespace

const OperatorSchema& quantised_gemm_schema() {
  using Op = QuantisedGemm;
  static const OperatorSchema table =
      Schema<Op>("quantised_gemm", "product with weights of 8, 4 or 2 bits")
          .in(&Op::a, "a", "... k", one_of({bf16, f16, e4m3, i8}), "rows")
          .in(&Op::b, "b", "format=int8 ? n k : format=ternary ? n k/4 : n k/2", one_of({u8, i8}),
              "weights: one, two or four in a byte")
          .range("0", "256")
          .in(&Op::scales, "scales", "groups n", one_of({f16, bf16, f32, u8, e4m3}),
              "factors of every group of weights")
          .values(example_scales)
          .in(&Op::zeros, "zeros", "groups n", floats, "subtracted from the weights of a group")
          .in(&Op::tensor_scale, "tensor_scale", "1", is(f32), "factor of all weights")
          .in(&Op::row_scale, "row_scale", "...", is(f32),
              "factors of the rows of a, such as those of 8 bits")
          .in(&Op::bias, "bias", "n", floats, "added to every row")
          .option(&Op::format, "format", "format of a weight before it is scaled")
          .option(&Op::packed, "packed", "b is in the order that packed_weights returns")
          .option(&Op::group, "group",
                  "weights that share a scale; 0: a whole row; 32 for mxfp4, 16 for nvfp4",
                  between(0, 1 << 20, "0, 16, 32 or a multiple of 64", "give scales of such groups"))
          .option(&Op::splits, "splits", "splits of k, which are added in order; 0: planned",
                  between(0, 32, "1 to 32 splits, or 0"))
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Op::out, "out", "... n", chosen_by("out_dtype", floats.types, "a", bf16),
               "row_scale * (a * W^T) + bias")
          .let("of_scale", "format=mxfp4 ? 32 : (format=nvfp4 ? 16 : (group == 0 ? max(k,1) : group))")
          .with([](Schema<Op>& table) { add_weight_rules<&Op::group>(table, "group"); })
          .source(
              "Frantar et al. 2022, GPTQ; OCP Microscaling Formats (MX) 1.0, 2023; Ma et al. 2024, The Era "
              "of 1-bit LLMs")
          .no_gradient("its weights are quantised")
          .flops("2*rows*n*k")
          .examples(quantised_examples())
          .measured(quantised_measured())
          .maps(quantised_maps())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
