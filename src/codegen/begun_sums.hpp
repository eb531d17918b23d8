// Sums that the first step of a loop begins: a product that adds to a tile of zeros stores there instead.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/ir.hpp"

namespace tegula::codegen {

struct BegunSum {
  ir::Stmt clear;    // the loop that fills the tile, wanted only where the loop has no step
  ir::Stmt product;  // in the body of the loop, which adds to all of the tile
};

// Keyed by the loop. Only the product touches the tile in it, in every step; nothing does between the two.
using BegunSums = std::unordered_map<const ir::StmtNode*, std::vector<BegunSum>>;
BegunSums begun_sums(const ir::Body& body);

}  // namespace tegula::codegen
