// Sums that the first step of a loop begins: a product that adds to a tile of zeros stores there instead; and
// that leave for a tensor from the registers, where the loop has one step.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/tiles.hpp"

namespace tegula::codegen {

struct BegunSum {
  ir::Stmt clear;    // the loop that fills the tile, wanted only where the loop has no step
  ir::Stmt product;  // in the body of the loop, which adds to all of the tile
  ir::Stmt copy;     // behind the loop, which alone reads the sums of tile registers; null: there is none
};

// Keyed by the loop. Only the product touches the tile in it, in every step; nothing does between the two.
using BegunSums = std::unordered_map<const ir::StmtNode*, std::vector<BegunSum>>;
BegunSums begun_sums(const ir::Body& body, const TileUses& uses);

}  // namespace tegula::codegen
