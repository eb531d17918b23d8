// Copies of operand B that the product itself performs: its first rows read the tensor and fill the panels
// that the other rows read. Where there are few rows, and nothing else reads the tile, no panel is filled.
#pragma once
#include <unordered_map>

#include "codegen/tiles.hpp"

namespace tegula::codegen {

// Sums of f32, and rows of B that are whole vectors.
bool may_fill_panels(const ir::Gemm& product);

// Few rows, which lie along k, as columns of B do that groups of vectors hold.
bool may_read_columns(const ir::Gemm& product);

// Whether the product has so few rows that they are multiplied at once, and alone reads its operand B.
bool reads_once(const ir::Gemm& product, const TileUses& uses);

// The copies among the statements, by the statement of the product.
using LateCopies = std::unordered_map<const ir::StmtNode*, ir::Stmt>;
LateCopies late_copies(const ir::Body& body, const TileUses& uses);

}  // namespace tegula::codegen
