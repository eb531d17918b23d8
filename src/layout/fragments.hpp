// The layouts that instructions prescribe, and the one for all other fragments.
#pragma once
#include <optional>

#include "layout/layout.hpp"

namespace tegula::layout {

// Registers hold `vector` neighbours along the last dimension, threads follow along it and then along the
// other dimensions, from the last to the first; what remains of the shape is in further registers, what
// remains of the threads are replicas.
Layout blocked(std::int64_t threads, const Coordinates& shape, std::int64_t vector);
// The same where rows end within such a run of neighbours: the threads of a row, a power of two, are chosen
// so that few of them have nothing.
Layout blocked_in_cut_rows(std::int64_t threads, const Coordinates& shape, std::int64_t vector);

// Threads that have whole rows of a few halves of such runs, if there are as many rows; nothing of others.
std::optional<Layout> rows_of_threads(std::int64_t threads, const Coordinates& shape, std::int64_t vector);

// One of these for threads that best take `vector` neighbours at a time, or fewer where rows are no multiple
// of them and may not be cut.
Layout in_pieces(std::int64_t threads, const Coordinates& shape, std::int64_t vector, bool may_be_cut);

// How the warps, or warp groups, of a block divide a product.
struct Division {
  std::int64_t along_m = 1, along_n = 1;
};

// The accumulator [m, n] of wgmma m64nNk16 on along_m x along_n warp groups. Each has the rows 64 i + … for
// its i of along_m, 64 along_m apart, and n / along_n neighbouring columns.
Layout wgmma_accumulator(std::int64_t m, std::int64_t n, const Division& groups);
// The accumulator [m, n] of mma.sync m16n8 on along_m x along_n warps, divided in the same way.
Layout mma_accumulator(std::int64_t m, std::int64_t n, const Division& warps);

// What a thread has of a product by multiply-add: rows and columns of the sum, one by one or four neighbours
// at a time, in registers row by row. Columns belong to so many lanes of a warp, so that rows stay within it.
struct OwnBlock {
  int lanes = 0, rows = 0, columns = 0;
  bool rows_in_fours = false, columns_in_fours = false;
};
// The accumulator [m, n]; of these, the block's extents divide m and n.
Layout own_blocks(std::int64_t m, std::int64_t n, std::int64_t threads, const OwnBlock& own);

// The 16-bit operand A [m, k] in registers. Warps that share rows hold the same elements.
Layout wgmma_operand_a(std::int64_t m, std::int64_t k, const Division& groups);
Layout mma_operand_a(std::int64_t m, std::int64_t k, const Division& warps);

}  // namespace tegula::layout
