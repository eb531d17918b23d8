// Loops that copy 8-bit elements of a tensor to a tile of the other order.
#pragma once
#include <optional>

#include "ir/stmt.hpp"

namespace tegula::passes {

// A thread brings 16 bytes of each of four rows of the tensor, and stores four bytes to each of 16 rows of
// the tile; a warp eight times as many rows and four times as many columns.
inline constexpr int turned_rows = 4, turned_columns = 16;
inline constexpr int rows_of_warp = 8 * turned_rows, columns_of_warp = 4 * turned_columns;

struct ByteTurn {
  const ir::For* loop = nullptr;
  const ir::Load* load = nullptr;
  const ir::Store* store = nullptr;
};

std::optional<ByteTurn> plan_byte_turn(const ir::Stmt& stmt);

}  // namespace tegula::passes
