// Rows of operand A that a product reads where they are in a tensor: their copy to a tile can be left out.
#pragma once
#include <unordered_map>

#include "codegen/tiles.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

// The tiles that copies of the body fill, each all of it, from tensors that the block, whose effects these
// are, does not write; and the product behind it that alone reads it.
std::unordered_map<const ir::Buffer*, ir::Stmt> placed_rows(const ir::Body& body, const TileUses& uses,
                                                            const ir::Effects& block);

}  // namespace tegula::codegen
