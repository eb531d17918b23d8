// Copies of operand B that the product itself performs: its first rows read the tensor and fill the panels
// that the other rows read.
#pragma once
#include <unordered_map>

#include "codegen/tiles.hpp"

namespace tegula::codegen {

// Sums of f32, and rows of B that are whole vectors.
bool may_fill_panels(const ir::Gemm& product);

// The copies among the statements, by the statement of the product.
using LateCopies = std::unordered_map<const ir::StmtNode*, ir::Stmt>;
LateCopies late_copies(const ir::Body& body, const TileUses& uses);

}  // namespace tegula::codegen
