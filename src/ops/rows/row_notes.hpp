// What plans say of rows that no choice of theirs makes as fast as others.
#pragma once
#include <fmt/format.h>

#include "ops/schema/launch.hpp"

namespace tegula::ops {

// Of rows of which a tile has one or two: they begin off 16 bytes, where asynchronous copies do not begin
// either.
inline void note_cut_rows(Launch& launch, std::int64_t elements, DType type) {
  constexpr int piece = 16;
  if (elements * type.bytes() % piece == 0) return;
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} elements begin off 16 bytes, so that threads load and shift words of them, and "
        "hold "
        "each until its sums are formed",
        elements);
  });
}
// The same of rows that come ahead.
inline void note_runs(Launch& launch, std::int64_t elements, DType type) {
  constexpr int piece = 16;
  if (elements * type.bytes() % piece == 0) return;
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} elements begin off 16 bytes: the pieces around them come ahead to shared memory, "
        "where threads shift what they read",
        elements);
  });
}
// Rows of 16 bits that a power of two of lanes shares, by pieces of eight bytes of which each lane has one.
inline void note_idle_lanes(Launch& launch, std::int64_t elements, DType type) {
  constexpr std::int64_t half = 4, piece = 2 * half, most = 7, least_idle = 3;
  if (type.bits() != 16 || elements % piece != half || elements > most * half) return;
  const std::int64_t pieces = elements / half, lanes = pieces > 4 ? 8 : 4;
  if (8 * (lanes - pieces) < least_idle * lanes) return;
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} elements are {} pieces of 8 bytes for {} lanes, of which {} have none", elements,
        pieces, lanes, lanes - pieces);
  });
}
// Of long rows a block has one, and with it the sums of all features.
inline void note_few_rows_of_blocks(Launch& launch, std::int64_t rows, int processors) {
  if (rows >= processors) return;
  launch.note([&] {
    return fmt::format(
        "plan: {} rows are a block each, fewer than the {} processors, and a second grid adds the sums of "
        "features that each block has of its row",
        rows, processors);
  });
}
// A cluster of eight blocks has one row at a time.
inline void note_few_rows_of_clusters(Launch& launch, std::int64_t rows) {
  constexpr std::int64_t few = 64;
  if (rows > few) return;
  launch.note([&] {
    return fmt::format(
        "plan: {} rows are few for clusters that stay, whose sums of features a second grid adds", rows);
  });
}
// No block, cluster or processor holds a row with the sums of its features.
inline void note_rows_read_twice(Launch& launch, std::int64_t elements) {
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} elements are read twice, for their own sums and for those of features", elements);
  });
}

// On a CPU, where a row lies on pages of its own.
inline void note_blocks_of_rows(Launch& launch, std::int64_t bytes_of_row) {
  constexpr std::int64_t page = 4096;
  if (bytes_of_row < page) return;
  launch.note([&] {
    return fmt::format(
        "plan: a block of 128 x 128 has a few lines of each of 128 rows, which are {} bytes apart; scales of "
        "tokens are found row by row",
        bytes_of_row);
  });
}

}  // namespace tegula::ops
