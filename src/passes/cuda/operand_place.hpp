// The position of a product's operand in its shared tile, in the form of the tensor cores' descriptors.
#pragma once
#include <vector>

#include "ir/stmt.hpp"
#include "layout/tile_order.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

// The tile as a matrix: its last dimension, and all others together.
std::int64_t tile_rows(const ir::Buffer& tile);
std::int64_t tile_columns(const ir::Buffer& tile);
// How tensor cores read that matrix; row by row where they cannot.
layout::TileOrder swizzled_order(const ir::Buffer& tile);

// A matrix of the tile, from a row and a column on: its axes are the tile's rows and columns.
struct OperandPlace {
  // So many rows, or columns, further for each step of an index, which runs up to `extent`.
  struct Step {
    ir::Expr index;
    std::int64_t rows = 0, columns = 0, extent = 0;
  };

  bool is_transposed = false;  // the view's second axis runs along the tile's rows
  std::int64_t rows = 0;       // of the tile
  layout::TileOrder order;
  std::int64_t row = 0, column = 0;
  std::vector<Step> steps;  // that are known when the program runs
};

// The place of an operand [m, k] or [n, k], stored so or transposed. `along_k` is the axis of the view along
// k.
Planned<OperandPlace> place_of(const ir::View& view, int along_k);

// The same matrix with its axes exchanged.
ir::View transposed(ir::View view);

// The columns of each instruction with which a warp group multiplies its `own` columns of B, where each of
// `groups` begins that many after the one before; empty where instructions would be too narrow. One that
// begins inside of a block of columns ends with it.
inline constexpr std::int64_t widest_instruction = 256;
std::vector<int> instruction_columns(const OperandPlace& b, std::int64_t own, std::int64_t groups,
                                     std::int64_t widest = widest_instruction);

}  // namespace tegula::passes
