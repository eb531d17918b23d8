// Loads of one iteration that together read whole pieces of a row.
//
// A program that unpacks a word reads the eight activations of its eight weights: x(8 * i), x(8 * i + 1), …
// Each is a load of its own with limits of its own, though one instruction of 16 bytes would bring all.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/bounds.hpp"
#include "ir/stmt.hpp"

namespace tegula::passes {

// A piece of a row: neighbours of a tensor from a multiple of their number on, all inside it or all outside.
struct Piece {
  ir::Access first;
  int width = 1;
};

struct PieceLoads {
  std::vector<Piece> pieces;
  // Of the loads that a piece brings: which it is, and the place in it. The first one in the body stands
  // behind all that the place of the piece needs.
  struct Part {
    std::size_t piece;
    int at;
  };
  std::unordered_map<const ir::StmtNode*, Part> loads;
};

// Of the statements of one iteration, as far as no store to a tensor stands in front of them.
PieceLoads piece_loads(const ir::Body& body, const ir::Facts& facts);

}  // namespace tegula::passes
