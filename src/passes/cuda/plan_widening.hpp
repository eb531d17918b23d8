// Copies of 8-bit floats of a tensor to rows of a tile of 16-bit floats, in two parts: the copy engine brings
// bytes, and threads widen them.
#pragma once
#include <optional>

#include "ir/stmt.hpp"
#include "passes/cuda/plan_copies.hpp"

namespace tegula::passes {

// A thread widens so many neighbours of a row.
inline constexpr int widened_elements = 16;

// Rows of the tile that a copy fills; those outside of the limits are zeros.
struct WidenedRows {
  std::int64_t first = 0, count = 0;
  ir::Expr low = {}, high = {};  // numbers of rows of the tile, half open; null: no limit
};

struct Widening {
  ir::Copy load;  // of the bytes
  TensorCopy plan;
  WidenedRows rows;
};

// Of a copy, or a loop over elements that is one, to a tile whose bytes come in `bytes`; where there is no
// such tile yet, in a new one. Nothing for other statements, where the engine cannot bring the bytes, and
// where a limit may cut a row.
std::optional<Widening> plan_widening(const ir::Stmt& stmt, const ir::BufferPtr& bytes);

// Of a loop over all elements of such a tile whose rows are looked up: the loop that brings them, as they are
// stored, to a new tile. Nothing for other statements.
std::optional<ir::Stmt> rows_as_stored(const ir::Stmt& stmt);

// The first columns of the tile that such a statement may fill with elements, a multiple of those that a
// thread widens; the tensor has no others.
std::int64_t columns_to_widen(const ir::Stmt& stmt, const ir::Buffer& tile);

// tile = bytes, row by row: what threads compute.
ir::Stmt widening(const ir::BufferPtr& bytes, const ir::BufferPtr& tile, const std::vector<WidenedRows>& rows,
                  const Loc& at);

}  // namespace tegula::passes
