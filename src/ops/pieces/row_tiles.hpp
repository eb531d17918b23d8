// The number of rows of a tile of whole rows.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

// `planned`, which was the fastest of those measured, unless tuning asks for a half, the double, a quarter or
// four times as many. No model tells these apart: their estimates only order them by their distance.
inline int rows_of_tile(int planned, int row_elements) {
  constexpr int most_rows = 64, most_elements = 32768;
  Candidates<int, 5> all{planned};
  for (int rows : {planned / 2, 2 * planned, planned / 4, 4 * planned})
    if (rows >= 1 && rows <= most_rows && rows * row_elements <= most_elements) all.add(rows);
  return best_of(all, [&](int rows) {
    return static_cast<double>(std::max(rows, planned)) / static_cast<double>(std::min(rows, planned));
  });
}

// The power of two up to so many rows, of which a GPU's threads have equal parts of a tile.
inline int whole_power(int rows) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(rows))); }

// A GPU's block has so many of the shortest rows that each of its threads has pieces of its own: of 16 rows
// of 8 features, one for every eighth. A CPU's begins once for so many.
inline constexpr int fewest_elements_of_tile = 2048, fewest_elements_on_cpu = 1024;

// Whether a row of 16 bits has three or four pieces for each lane of a warp, which then has whole rows: its
// sums need no other warp. Of rows that end at a multiple of half a piece the last round may lack a few.
inline bool is_row_of_warp(int row_elements) {
  constexpr int lanes = 32, piece = 8, half = piece / 2, least_full = 8;
  const int own = row_elements % piece == half ? half : piece, pieces = row_elements / own;
  const int rounds = (pieces + lanes - 1) / lanes, idle = rounds * lanes - pieces;
  if (row_elements % own != 0 || idle * least_full > (own == half ? pieces : 0)) return false;
  return rounds == 3 || rounds == 4;
}
// Whether a thread has a whole row of 16 bits, of a few halves of pieces, where it is only read.
inline bool is_row_of_thread(int row_elements) {
  constexpr int piece = 8, half = piece / 2, fewest = 3, most = 7;
  return row_elements % piece == half && row_elements >= fewest * half && row_elements <= most * half;
}

// Rows of about so many elements together; where warps have whole rows, of as many as four have. Where a
// GPU's rows end within pieces of 16 bytes, of which a thread then has several of one row, they are a power
// of two, and fewer where they are not short: loads that are shifted take more registers.
inline int rows_of_plan(int elements, int row_elements, bool on_gpu, DType type) {
  constexpr int piece = 8, short_row = 768, long_row = 1024, most = 16, of_warps = 4;
  const int fewest = on_gpu ? fewest_elements_of_tile : fewest_elements_on_cpu;
  const int most_rows = std::max(most, fewest / std::max(row_elements, 1));
  const bool is_cut = on_gpu && row_elements % piece != 0;
  const bool is_between = row_elements > short_row && row_elements <= long_row,
             is_of_warp = on_gpu && is_row_of_warp(row_elements) && (!is_cut || type.bits() == 16);
  if (is_of_warp) return of_warps;
  const int own = is_cut && is_between ? elements / 2 : elements;
  const int rows = std::clamp(own / std::max(row_elements, 1), 1, most_rows);
  return is_cut ? whole_power(rows) : rows;
}

// Threads of a block that holds so many pieces of a row, of those numbers for each thread the first of which
// the fewest are idle: powers of two leave half of them without a last piece of 513. 0 if there are too many.
inline int threads_with_pieces(std::int64_t pieces, std::initializer_list<int> numbers_of_each) {
  constexpr std::int64_t warp = 32, fewest = 96, most = 512;
  std::int64_t least = 0, result = 0;
  for (const int each : numbers_of_each) {
    const std::int64_t wanted = (pieces + each - 1) / each,
                       threads = std::max(fewest, (wanted + warp - 1) / warp * warp);
    if (threads > most || (result > 0 && threads * each >= least)) continue;
    result = threads, least = threads * each;
  }
  return static_cast<int>(result);
}

// Of a tile of one row of some tensors that ends within a piece. Of others the compiler chooses, and of few
// elements, too: blocks of few warps with more pieces each cover for each other.
inline std::optional<int> threads_of_cut_tile(int rows, int row_elements, int tensors, bool on_gpu) {
  constexpr int piece = 8, few_elements = 8192;
  if (!on_gpu || rows > 1 || row_elements % piece == 0) return std::nullopt;
  if (tensors * row_elements <= few_elements) return std::nullopt;
  const int threads = threads_with_pieces((row_elements + piece - 1) / piece, {2, 3, 4});
  return threads > 0 ? std::optional(threads) : std::nullopt;
}

// Threads that share the pieces of a row evenly where no power of two does: at most `most`, and more than
// half of them; 0 where the compiler chooses.
inline int threads_of_pieces(int pieces, int most) {
  if ((pieces & (pieces - 1)) == 0 || pieces % most == 0) return 0;
  for (int threads = most; 2 * threads > most; threads -= 32)
    if (pieces % threads == 0) return threads;
  return 0;
}

}  // namespace tegula::ops
