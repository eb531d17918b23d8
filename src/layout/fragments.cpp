#include "layout/fragments.hpp"

#include <algorithm>
#include <bit>

#include "tegula/error.hpp"

namespace tegula::layout {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t exact_div(std::int64_t a, std::int64_t b) {
  internal_assert(b > 0 && a % b == 0, "a tile is divided without remainder");
  return a / b;
}

std::int64_t count_of(const Coordinates& shape) {
  std::int64_t result = 1;
  for (const std::int64_t extent : shape) result *= extent;
  return result;
}

// Those of the digits that a warp's 16 rows have in all these instructions: a quad of threads holds two
// neighbours along the second dimension each, eight quads follow along the first, and the registers hold the
// same again eight rows below.
struct WarpTile {
  Digits threads{digit(2, 1, 4, 2), digit(2, 0, 8, 1)};
  Digits registers{digit(2, 1, 2, 1), digit(2, 0, 2, 8)};
};

Layout rows_by_warps(std::int64_t rows, std::int64_t columns, std::int64_t unit, const Division& division,
                     bool divide_columns) {
  WarpTile tile;
  const std::int64_t own = divide_columns ? exact_div(columns, division.along_n) : columns;
  if (unit == 64) tile.threads.push_back(digit(2, 0, 4, 16));
  tile.threads.push_back(digit(2, 0, division.along_m, unit));
  tile.threads.push_back(divide_columns ? digit(2, 1, division.along_n, own) : replica(2, division.along_n));
  tile.registers.push_back(digit(2, 1, exact_div(own, 8), 8));
  const std::int64_t step = unit * division.along_m;
  tile.registers.push_back(digit(2, 0, ceil_div(rows, step), step));
  return {{rows, columns}, std::move(tile.threads), std::move(tile.registers)};
}

}  // namespace

Layout blocked(std::int64_t threads, const Coordinates& shape, std::int64_t vector) {
  const int rank = static_cast<int>(shape.size());
  Digits by_thread, by_register, outer;
  // Only powers of two divide the inner dimensions; an odd factor of the threads goes to the first one, or to
  // the last one where that has all elements: there it is the slowest digit, as in the elements' numbers.
  auto left = static_cast<std::int64_t>(1) << std::countr_zero(static_cast<std::uint64_t>(threads));
  std::int64_t odd = threads / left;
  for (int d = rank - 1; d >= 0; --d) {
    const std::int64_t extent = shape[static_cast<std::size_t>(d)];
    const std::int64_t own = d == rank - 1 ? vector : 1;
    if (own > 1) by_register.push_back(digit(rank, d, own, 1));
    const std::int64_t wanted = ceil_div(extent, own);
    const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
    std::int64_t taken = std::min(left, power);
    by_thread.push_back(digit(rank, d, taken, own));
    left /= taken;
    const bool alone = d == rank - 1 && wanted > taken && own * wanted == count_of(shape);
    if (alone && d > 0 && left == 1 && odd > 1) {
      const std::int64_t rounds = ceil_div(wanted, taken * odd);
      by_register.push_back(digit(rank, d, rounds, own * taken));
      by_thread.push_back(digit(rank, d, odd, own * taken * rounds));
      taken *= odd * rounds;
      odd = 1;
    }
    if (d == 0 && left == 1 && odd > 1 && wanted > taken) {
      by_thread.push_back(digit(rank, d, odd, own * taken));
      taken *= odd;
      odd = 1;
    }
    outer.push_back(digit(rank, d, ceil_div(extent, own * taken), own * taken));
  }
  if (left * odd > 1) by_thread.push_back(replica(rank, left * odd));
  by_register.insert(by_register.end(), outer.begin(), outer.end());
  return {shape, std::move(by_thread), std::move(by_register)};
}

namespace {

// Rows that so many threads have in rounds, as many pieces each.
Layout in_rounds(std::int64_t threads, const Coordinates& shape, std::int64_t vector,
                 std::int64_t threads_of_row) {
  Coordinates one = shape;
  one.back() = threads_of_row * vector;
  const Layout first = blocked(threads, one, vector);
  Digits registers = first.registers();
  const int rank = static_cast<int>(shape.size());
  const std::int64_t rounds = ceil_div(shape.back(), one.back());
  if (rounds > 1) registers.push_back(digit(rank, rank - 1, rounds, one.back()));
  return {shape, first.threads(), std::move(registers)};
}

// The threads of a row of whole pieces that has them in rounds, if there are rows for all other threads: a
// warp, whose sums need no shared memory, for three or four; or, where the power of two that has all pieces
// would leave a fourth of its threads idle, the largest power that divides them. 0 if there are no such.
std::int64_t threads_of_rounds(std::int64_t threads, std::int64_t rows, std::int64_t pieces) {
  constexpr std::int64_t warp = 32, few_rounds = 2, most_rounds = 4, fewest = 16;
  const auto all = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(pieces)));
  const std::int64_t even = pieces & -pieces;
  const bool is_of_warp = even >= warp && pieces > few_rounds * warp && pieces <= most_rounds * warp;
  const std::int64_t own = is_of_warp ? warp : 4 * (all - pieces) >= all && even >= fewest ? even : 0;
  return own * rows >= threads ? own : 0;
}

}  // namespace

Layout blocked_in_cut_rows(std::int64_t threads, const Coordinates& shape, std::int64_t vector) {
  constexpr std::int64_t line = 8;  // threads that read a line of memory together
  const std::int64_t pieces = ceil_div(shape.back(), vector);
  const std::int64_t power = std::int64_t{1} << std::countr_zero(static_cast<std::uint64_t>(threads));
  // With fewer threads of a row there would be more of them than rows.
  const auto rows = static_cast<std::uint64_t>(count_of(shape) / shape.back());
  const bool is_shared = rows == 1 && power < threads;  // by all threads, whose number is no power
  const std::int64_t fewest = std::max(line, power / static_cast<std::int64_t>(std::bit_floor(rows)));
  auto most = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(pieces)));
  most = std::min(most, power);
  const auto idle = [&](std::int64_t own) { return ceil_div(pieces, own) * own - pieces; };
  std::int64_t best = is_shared ? threads : most;
  for (std::int64_t own = best; !is_shared && own >= fewest && 4 * idle(best) > pieces; own /= 2)
    if (idle(own) < idle(best)) best = own;
  return in_rounds(threads, shape, vector, best);
}

namespace {

// Whether rows end within pieces of so many elements, and not within halves of them.
bool has_halves(std::int64_t row, std::int64_t vector) {
  constexpr std::int64_t of_16_bits = 8;
  return vector == of_16_bits && row % vector != 0 && row % (vector / 2) == 0;
}

// Whether a warp has a row in three or four rounds of halves, almost none of which lack lanes: then no piece
// is shifted, and sums need no shared memory.
bool is_of_halves(std::int64_t threads, std::int64_t rows, std::int64_t row, std::int64_t vector) {
  constexpr std::int64_t warp = 32, few_rounds = 2, most_rounds = 4, least_full = 8;
  if (!has_halves(row, vector) || warp * rows < threads) return false;
  const std::int64_t pieces = row / (vector / 2), idle = ceil_div(pieces, warp) * warp - pieces;
  return pieces > few_rounds * warp && pieces <= most_rounds * warp && least_full * idle <= pieces;
}

}  // namespace

std::optional<Layout> rows_of_threads(std::int64_t threads, const Coordinates& shape, std::int64_t vector) {
  constexpr std::int64_t fewest_halves = 3, most_halves = 7;
  if (shape.size() != 2 || shape[0] % threads != 0 || !has_halves(shape[1], vector)) return std::nullopt;
  const std::int64_t halves = shape[1] / (vector / 2);
  if (halves < fewest_halves || halves > most_halves) return std::nullopt;
  return Layout(shape, {digit(2, 0, threads, 1)},
                {digit(2, 1, shape[1], 1), digit(2, 0, shape[0] / threads, threads)});
}

Layout in_pieces(std::int64_t threads, const Coordinates& shape, std::int64_t vector, bool may_be_cut) {
  constexpr std::int64_t fewest_pieces = 4, lanes_of_warp = 32;  // of a row that may be cut
  if (shape.empty()) return blocked(threads, shape, 1);
  const std::int64_t elements = count_of(shape), row = shape.back();
  // Where half of the threads would be idle, single elements are faster.
  const bool fills = 100 * (elements / row) * ceil_div(row, vector) >= 51 * threads;
  if (may_be_cut && is_of_halves(threads, elements / row, row, vector))
    return in_rounds(threads, shape, vector / 2, lanes_of_warp);
  if (may_be_cut && fills && row % vector != 0 && row > fewest_pieces * vector)
    return blocked_in_cut_rows(threads, shape, vector);
  while (vector > 1 && (row % vector != 0 || elements < vector * threads)) vector /= 2;
  if (const std::int64_t own = may_be_cut ? threads_of_rounds(threads, elements / row, row / vector) : 0)
    return in_rounds(threads, shape, vector, own);
  return blocked(threads, shape, vector);
}

Layout wgmma_accumulator(std::int64_t m, std::int64_t n, const Division& groups) {
  return rows_by_warps(m, n, 64, groups, true);
}

Layout mma_accumulator(std::int64_t m, std::int64_t n, const Division& warps) {
  return rows_by_warps(m, n, 16, warps, true);
}

Layout own_blocks(std::int64_t m, std::int64_t n, std::int64_t threads, const OwnBlock& own) {
  const std::int64_t groups = exact_div(threads, own.lanes);
  Digits by_thread, by_register;
  const auto divide = [&](int dim, std::int64_t units, std::int64_t count, bool in_fours) {
    const std::int64_t together = in_fours ? 4 : 1;
    by_thread.push_back(digit(2, dim, units, together));
    if (in_fours) by_register.push_back(digit(2, dim, together, 1));
    by_register.push_back(digit(2, dim, exact_div(count, together), units * together));
  };
  divide(1, own.lanes, own.columns, own.columns_in_fours);
  divide(0, groups, own.rows, own.rows_in_fours);
  return {{m, n}, std::move(by_thread), std::move(by_register)};
}

Layout wgmma_operand_a(std::int64_t m, std::int64_t k, const Division& groups) {
  return rows_by_warps(m, k, 64, groups, false);
}

Layout mma_operand_a(std::int64_t m, std::int64_t k, const Division& warps) {
  return rows_by_warps(m, k, 16, warps, false);
}

}  // namespace tegula::layout
