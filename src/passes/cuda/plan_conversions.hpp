// Loops over elements that compute a tile of 16-bit floats from rows of tensors, where each row may be looked
// up.
#pragma once
#include <optional>
#include <vector>

#include "ir/stmt.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

// A thread makes neighbours of a row at a time, as many as 16 bytes of the narrowest operand hold.
struct RowConversion {
  // What a statement finds out, or where it takes it from.
  enum class Of : std::uint8_t {
    row,      // the same for all elements of a piece
    piece,    // neighbours in a row of a tensor, or of a tile
    element,  // each element's own
  };
  ir::Stmt loop;
  int elements = 0;            // of a piece
  std::vector<Of> statements;  // of the loop's body but for the store, which is the last

  // Pieces of one tensor make the tile, and none of another tile.
  bool reads_one_tensor() const;
};

// Nothing for other loops: their last index does not go along whole rows of the tile, they do more than read
// and compute, or find rows by what differs within a piece.
std::optional<RowConversion> plan_conversion(const ir::Stmt& stmt);

// Why a loop that computes such a tile reads a tensor one element at a time, where the program limits the
// place in a row.
Reason reason_of_limits(const ir::Stmt& stmt);

}  // namespace tegula::passes
