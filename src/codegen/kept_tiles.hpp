// Operands of products that a thread keeps for its next blocks, which read the same.
#pragma once
#include <unordered_map>
#include <vector>

#include "codegen/tiles.hpp"

namespace tegula::codegen {

// The tiles of the first steps of a loop, or one.
struct KeptTiles {
  ir::VariablePtr step;           // the index of the loop; null: there is none
  std::int64_t count = 1;         // of tiles
  std::int64_t bytes = 0;         // of each
  std::vector<std::size_t> same;  // blocks with equal indices in these places read the same
};

// By the copies that bring them.
using KeptCopies = std::unordered_map<const ir::StmtNode*, KeptTiles>;

// Copies of what no block writes, to tiles that products alone read, which blocks that a thread runs one
// after the other have in common. Those that products make themselves are left to them.
KeptCopies kept_copies(const ir::Kernel& kernel, const ir::Grid& grid, const TileUses& uses);

// The index of a grid that changes from one block to the next.
std::size_t fastest_index(const ir::Grid& grid);

std::int64_t panel_tile_bytes(const ir::Buffer& tile);

}  // namespace tegula::codegen
