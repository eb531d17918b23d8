// The layout of each tile in the scratch memory of a block.
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "ir/ir.hpp"

namespace tegula::codegen {

// Rows are padded to this many elements, a multiple of every vector width, so that one text serves all
// instruction sets.
inline constexpr std::int64_t row_unit = 16;
inline constexpr std::int64_t round_up(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

// The matrix that gemm reads as B, ready as panels; `transposed` if the tile's rows are the columns of B.
struct PanelTile {
  bool transposed;
};

// Products of bf16 with sums of f32 and this many rows may go by tile registers, where a processor has them.
inline constexpr std::int64_t least_rows_by_tiles = 12;
bool is_product_of_bf16(const ir::Gemm& product);

struct TileUses {
  std::unordered_map<const ir::Buffer*, PanelTile> panels;
  // Of bf16, and only read by products that may go by tile registers: as A, or, of the panels above, as B.
  // Copies bring them whole; loops over whole vectors may access those of A, each element its own.
  std::unordered_set<const ir::Buffer*> narrow;
  std::unordered_set<const ir::Buffer*> dense;  // seen with another shape: no padding between rows
  std::unordered_map<const ir::Buffer*, std::size_t> mentions;  // statements that access it
};

TileUses tile_uses(const ir::Body& body);
bool is_reshaped(const ir::View& view);

// The bytes of an element as it is held in a tile.
std::int64_t held_bytes(DType type);
// Distance of neighbours along each dimension, and the elements of the whole tile.
std::vector<std::int64_t> tile_strides(const ir::Buffer& tile, bool dense);
std::int64_t tile_elements(const ir::Buffer& tile, bool dense);

}  // namespace tegula::codegen
