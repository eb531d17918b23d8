// Programs and formulas of norms over rows of features: by the root mean square, and by mean and deviation.
#pragma once
#include <algorithm>

#include "ops/pieces/kept_rows.hpp"
#include "ops/pieces/row_tiles.hpp"
#include "ops/pieces/rows.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/rows/row_notes.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

// What an operator's struct says of it: a norm with a bias subtracts the mean of a row first, and one with a
// residual adds that before.
template <class Op>
inline constexpr bool is_centred = requires(const Op& op) {
  op.bias;
};
template <class Op>
inline constexpr bool adds_residual = requires(const Op& op) {
  op.residual;
};

template <class Op>
struct NormInstance {
  DType type = f32;
  std::optional<DType> weight;
  int dim = 0, rows = 1;  // rows of a tile
  std::optional<DType> bias;
  int threads = 0;
  std::optional<SpreadRows> pieces = {};  // of rows that no block holds; their number of features is no part
  std::optional<int> held = {};           // pieces in registers
  bool direct = false;                    // rows of a gradient come to registers at once
  bool runs = false;                      // or to shared memory, ahead, where they begin anywhere
  std::optional<int> spread = {};         // threads of each CTA that holds a part of the row
  bool stays = false;                     // and of those after it
  std::optional<int> partials = {};       // that are added at a time, unless many
  auto fields() const {
    return std::tuple(type, labelled("weight", weight), dim, rows, labelled("bias", bias),
                      labelled("threads", threads), pieces, labelled("held", held),
                      labelled("direct", direct), labelled("runs", runs), labelled("spread", spread),
                      labelled("stays", stays), labelled("partials", partials));
  }
  bool is_long() const { return dim > 8192; }
};

template <class Op>
std::string norm_name(const NormInstance<Op>& c, const std::string& suffix) {
  const std::string name = is_centred<Op> ? "layer_norm" : "rms_norm";
  return instance_name((adds_residual<Op> ? "add_" : "") + name + suffix, c);
}

template <class Op>
NormInstance<Op> norm_instance(const Bound<Op>& c) {
  NormInstance<Op> made{c.type("x"), c.type_if("weight"), c.small_dim("d"), 1, {}, 0};
  if constexpr (is_centred<Op>) made.bias = c.type_if("bias");
  return made;
}

// Rows of more features are read in pieces.
constexpr int longest_held_norm = 16384;
template <class Op>
NormInstance<Op> in_pieces(NormInstance<Op> made, const Bound<Op>& c, int tensors) {
  const int all = tensors * (adds_residual<Op> ? 2 : 1);
  made.pieces = spread_rows(c.dim("d"), c.type("x"), c.on_gpu(), all);
  // Gradients of longer weights are met by fewer elements than rows are loaded by, in blocks of one CTA.
  if (tensors > 1 && made.weight.value_or(made.type).bits() > made.type.bits())
    made.pieces = {kept_rows(c.dim("d"), c.type("x"), c.on_gpu(), all), {}};
  if (all == 1 && !is_centred<Op> && c.on_gpu() && ends_within_piece(c.dim("d")))
    made.pieces = {direct_rows(c.dim("d") * c.type("x").bytes()), {}};
  // Sums of gradients, or of rows that are centred, leave no registers.
  if (tensors == 1 && !is_centred<Op>)
    made.held = held_pieces(c.dim("d"), c.type("x"), made.pieces->rows, all);
  made.dim = 0;
  return made;
}

// Elements of 16 bytes of the narrower type, as threads take them of a row.
template <class Op>
int piece_of_row(const NormInstance<Op>& c) {
  return 16 / std::min(c.type.bytes(), c.weight.value_or(c.type).bytes());
}

// Rows that clusters which stay read once: pieces for all threads of one, which is all that a processor has
// or half of it. Gradients, which would read other rows twice, take rows of f32, too, and rows that leave
// little of the last piece empty.
inline constexpr int threads_of_shared_row = 512;
template <class Op>
std::optional<int> threads_of_staying_rows(const NormInstance<Op>& c, bool has_engine, bool of_gradient) {
  constexpr int shortest = 32768, longest = 131072, of_one = 65536, least_full = 16;
  const int bits = c.type.bits();
  const auto differs = [&](const std::optional<DType>& type) { return type.value_or(c.type).bits() != bits; };
  if (!has_engine || adds_residual<Op> || differs(c.weight) || differs(c.bias)) return std::nullopt;
  if (bits != 16 && !(of_gradient && bits == 32)) return std::nullopt;
  const int threads = threads_of_shared_row / (c.dim < of_one ? 2 : 1),
            of_round = ctas_of_held_row * threads * piece_of_row(c),
            idle = (of_round - c.dim % of_round) % of_round;
  if (c.dim < shortest || c.dim > longest * 16 / bits || c.dim % piece_of_row(c) != 0) return std::nullopt;
  if (idle > (of_gradient ? c.dim / least_full : 0)) return std::nullopt;
  return threads;
}

// `elements` of a tile, about.
template <int elements, class Op>
NormInstance<Op> norm_plan(const Bound<Op>& c) {
  NormInstance<Op> made = norm_instance(c);
  if (made.dim > longest_held_norm) {
    made.spread = threads_of_staying_rows(made, has_copy_engine(c.call()), false);
    made.stays = made.spread.has_value();
    if (made.stays) return made;
    made.spread = adds_residual<Op> ? threads_of_cut_row(made.dim, has_copy_engine(c.call()), {2})
                                    : threads_of_cut_row(made.dim, has_copy_engine(c.call()));
    return made.spread ? made : in_pieces(made, c, 1);
  }
  made.rows = rows_of_tile(rows_of_plan(elements, made.dim, c.on_gpu(), made.type), made.dim);
  made.threads = threads_of_cut_tile(made.rows, made.dim, made.weight ? 2 : 1, c.on_gpu()).value_or(0);
  return made;
}

// Threads of a block that holds sums of longer rows of 16-bit features, as few as have whole pieces and room
// for the sums; 0 if there are none, or shared memory has no room for a row of both tensors beside the
// weights: that of a GPU without copy engine has not even room for two of the shortest.
template <class Op>
int threads_of_long_gradient(const NormInstance<Op>& c, bool has_engine) {
  constexpr int longest = is_centred<Op> ? 20480 : 24576, fewest = 512, most = 768, warp = 32,
                most_pieces = 5;
  const int piece = piece_of_row(c), pieces = c.dim / piece;
  if (!has_engine || adds_residual<Op> || c.type.bits() != 16) return 0;
  if (c.dim % piece != 0 || c.dim > longest) return 0;
  if (pieces % fewest == 0 && pieces / fewest <= most_pieces) return fewest;
  for (int threads = most; threads > fewest; threads -= warp)
    if (pieces % threads == 0) return threads;
  return 0;
}

// Rows of which a thread holds so many elements, and those of a block of so many threads. Fewer have more
// elements each: what a thread does for each row, whatever it has of it, bounds shorter ones.
inline constexpr int elements_of_run = 24, longest_held_run = 384 * elements_of_run;
// Longer rows that end within pieces come ahead to shared memory as runs, of which it has room for two. Sums
// of both gradients leave no registers for what threads read of more features.
template <class Op>
bool comes_as_runs(const NormInstance<Op>& c) {
  constexpr int shortest = 1024, longest = is_centred<Op> ? 17664 : 20480;
  constexpr int shortest_of_f32 = 4096, longest_of_f32 = 11264;
  if (adds_residual<Op> || c.dim % piece_of_row(c) == 0) return false;
  const int bits = std::max(c.type.bits(), c.weight.value_or(c.type).bits());
  return bits == 16 ? c.dim > shortest && c.dim <= longest
                    : c.type == f32 && c.dim > shortest_of_f32 && c.dim <= longest_of_f32;
}
// Threads of a block that has a row: longer ones are read from shared memory wherever they are needed, by up
// to 576 threads, or by more where sums of both gradients would have a fifth piece.
template <class Op>
int threads_of_run(const NormInstance<Op>& c) {
  constexpr int warp = 32, usual = 576, of_long = 736;
  const int piece = piece_of_row(c), pieces = (c.dim + piece - 1) / piece,
            most = is_centred<Op> && c.dim > longest_held_norm ? of_long : usual;
  const int each = c.dim <= longest_held_run ? elements_of_run / piece : (pieces + most - 1) / most;
  const int wanted = (pieces + each - 1) / each;
  return (wanted + warp - 1) / warp * warp;
}

// Rows of a gradient that no block of the usual number of threads holds: those that threads have whole pieces
// of, those whose ends cut pieces, shared by a cluster, and others in pieces.
template <class Op>
NormInstance<Op> long_gradient_plan(NormInstance<Op> made, const Bound<Op>& c) {
  made.threads = threads_of_long_gradient(made, has_copy_engine(c.call()));
  if (made.threads > 0) return made;
  made.spread = threads_of_staying_rows(made, has_copy_engine(c.call()), true);
  made.stays = made.spread.has_value();
  if (made.stays) return made;
  // Four tensors of a row without a mean come to shared memory faster than a cluster reads them.
  if (!adds_residual<Op> || is_centred<Op>)
    made.spread = threads_of_cut_row(made.dim, has_copy_engine(c.call()), {2});
  made.direct = made.spread.has_value();
  return made.spread ? made : in_pieces(made, c, 2);
}

// Rows of a gradient that come to registers at once. Threads have a piece of a tile of short rows, or three
// where half of them would have none otherwise; a longer row has as many warps as it has pieces for them, of
// two pieces each if there would be too many.
template <class Op>
void divide_odd_rows(NormInstance<Op>& made, int piece) {
  constexpr int fewest = 128, most = 512, warp = 32, fewest_lanes = 16, most_rows = 64;
  const int pieces = (made.dim + piece - 1) / piece, wanted = pieces > most ? (pieces + 1) / 2 : pieces;
  made.threads = std::max(fewest, (wanted + warp - 1) / warp * warp);
  int rows = whole_power(std::clamp(fewest * piece / made.dim, 1, most_rows));
  const int lanes = fewest / rows;
  if (!adds_residual<Op> && 4 * pieces <= 3 * lanes && lanes >= 4 * fewest_lanes) rows *= 4;
  made.rows = rows_of_tile(rows, made.dim);
}

// Whether the shared memory of a block has room for a long row of all tensors beside its weights, and for
// what threads exchange.
template <class Op>
bool has_room_for_gradient(const NormInstance<Op>& c) {
  constexpr int all = 227 << 10, exchanged = 1 << 10;
  const int of_rows = (adds_residual<Op> ? 3 : 2) * c.type.bytes(),
            of_weights = c.weight ? c.weight->bytes() : 0;
  const bool comes_to_registers = c.dim % piece_of_row(c) != 0;
  return comes_to_registers || c.dim * (of_rows + of_weights) + exchanged <= all;
}

// The plan of the gradients: a thread has eight elements of a tile, or 16 if rows are long or the shortest.
template <class Op>
NormInstance<Op> norm_gradient_plan(const Bound<Op>& c) {
  constexpr int elements = 4096, most_threads = 512;
  NormInstance<Op> made = norm_instance(c);
  if (!c.on_gpu()) made.partials = few_partials;  // no more than it has processors, twice
  made.runs = c.on_gpu() && comes_as_runs(made);
  if (made.runs) {
    made.threads = threads_of_run(made);
    return made;
  }
  const bool is_held = !made.is_long() || has_room_for_gradient(made);
  if (made.dim > longest_held_norm || !is_held) return long_gradient_plan(made, c);
  const int most_rows = std::max(64, c.on_gpu() ? fewest_elements_of_tile / std::max(made.dim, 1) : 0),
            rows = std::clamp(elements / std::max(made.dim, 1), 1, most_rows);
  made.rows = rows_of_tile(c.on_gpu() ? whole_power(rows) : rows, made.dim);
  if (made.is_long()) made.threads = adds_residual<Op> && !is_centred<Op> ? 1024 : most_threads;
  const int piece = piece_of_row(made), pieces = made.dim / piece;
  const int even =
      made.dim % piece == 0 ? threads_of_pieces(pieces, std::max(made.threads, most_threads)) : 0;
  if (even > 0 && c.on_gpu()) made.threads = even, made.rows = 1;
  // An odd number of warps divides rows among them: each lane has three pieces of one.
  constexpr int lanes = 32, warps = 7;
  if (c.on_gpu() && !adds_residual<Op> && made.dim == 3 * lanes * piece)
    made.threads = warps * lanes, made.rows = warps;
  // In shared memory, rows with parts of pieces would begin at places that no thread reads by vectors.
  made.direct = c.on_gpu() && made.dim % piece != 0;
  if (made.direct && made.type.bits() == 16) divide_odd_rows(made, piece);
  return made;
}

template <class Op>
lang::Kernel norm_program(const NormInstance<Op>& c);
template <class Op>
lang::Kernel norm_gradient_program(const NormInstance<Op>& c);
template <class Op>
void run_norm_gradient(const Bound<Op>& c, Launch& launch) {
  const NormInstance<Op> made = norm_gradient_plan(c);
  if (made.pieces) note_rows_read_twice(launch, c.dim("d"));
  if (made.direct && made.rows == 1) note_cut_rows(launch, c.dim("d"), made.type);
  if (made.runs) note_runs(launch, c.dim("d"), made.type);
  if (c.on_gpu() && made.is_long() && !made.spread && !made.pieces)
    note_few_rows_of_blocks(launch, c.dim("rows"), planned_gpu_processors(c.call()));
  if (made.stays) note_few_rows_of_clusters(launch, c.dim("rows"));
  launch(made, norm_gradient_program<Op>);
}
template <int elements, class Op>
void run_norm(const Bound<Op>& c, Launch& launch) {
  const NormInstance<Op> made = norm_plan<elements>(c);
  if (c.on_gpu() && !made.pieces && made.rows == 1) note_cut_rows(launch, c.dim("d"), made.type);
  launch(made, norm_program<Op>);
}
// The same for rows in pieces.
template <class Op>
lang::Kernel long_norm_program(const NormInstance<Op>& c);
template <class Op>
lang::Kernel long_norm_gradient_program(const NormInstance<Op>& c);
// The same for rows that clusters which stay have in shared memory.
template <class Op>
lang::Kernel spread_norm_program(const NormInstance<Op>& c);
template <class Op>
lang::Kernel spread_norm_gradient_program(const NormInstance<Op>& c);
// In the file that has such a program.
#define TEGULA_PROGRAMS_OF_NORMS(program)                           \
  template lang::Kernel program(const NormInstance<RmsNorm>& c);    \
  template lang::Kernel program(const NormInstance<AddRmsNorm>& c); \
  template lang::Kernel program(const NormInstance<LayerNorm>& c);  \
  template lang::Kernel program(const NormInstance<AddLayerNorm>& c);

template <class Op, class E>
void norm_formula(const Bound<Op>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  const auto size = static_cast<std::size_t>(d);
  Number *x = exact.data("x"), *weight = exact.data_if("weight"), *out = exact.data("out");
  Number *bias = nullptr, *residual = nullptr, *sum = nullptr;
  if constexpr (is_centred<Op>) bias = exact.data_if("bias");
  if constexpr (adds_residual<Op>) residual = exact.data("residual"), sum = exact.data("sum");
  std::vector<Number> row(size);
  for (std::int64_t i = 0; i < rows; ++i, x += d, out += d) {
    Number mean = 0, squares = 0;
    for (std::size_t j = 0; j < size; ++j) {
      row[j] = x[j];
      if (adds_residual<Op>) row[j] = *sum++ = exact.stored(x[j] + *residual++, c.type("x"));
      mean += row[j] / static_cast<double>(d);
    }
    for (std::size_t j = 0; j < size; ++j) {
      if (is_centred<Op>) row[j] = row[j] - mean;
      squares += row[j] * row[j];
    }
    const auto r = exact.step(1 / sqrt(exact.step(squares / static_cast<double>(d)) + c->eps));
    for (std::size_t j = 0; j < size; ++j)
      out[j] = exact.step(row[j] * r) * (weight ? weight[j] : 1) + (bias ? bias[j] : 0);
  }
}

// The gradients of the parameters that the norm has, from partial sums.
template <class Op>
void add_partials_of_parameters(const NormInstance<Op>& c, const PartialSums& weight, const PartialSums& bias,
                                int rows) {
  std::vector<PartialSums> sums;
  if (c.weight) sums.push_back(weight);
  if (c.bias) sums.push_back(bias);
  add_partials(sums, rows);
}

// Adds results, rules and amount of work to a table that already has its inputs.
template <class Op>
Schema<Op>& with_norm(Schema<Op>& table) {
  table.option(&Op::eps, "eps", is_centred<Op> ? "added to the variance" : "added to the mean of the squares",
               positive);
  table.out(&Op::out, "out", "... d", same_as("x"),
            is_centred<Op> ? "(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias"
                           : "x / sqrt(mean(x^2) + eps) * weight");
  return table
      .source(is_centred<Op> ? "Ba, Kiros and Hinton 2016, Layer Normalization"
                             : "Zhang and Sennrich 2019, Root Mean Square Layer Normalization")
      .flops(is_centred<Op> ? "6*rows*d" : "4*rows*d");
}

}  // namespace tegula::ops
