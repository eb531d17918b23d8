// Loops over elements that load rows of a tensor into a shared tile, where each row may be looked up.
#pragma once
#include <optional>

#include "ir/stmt.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

inline constexpr int piece_bytes = 16;  // that a thread brings at a time

// The loop's last index goes along whole rows, in pieces; nothing before the load depends on it.
struct RowCopy {
  ir::Stmt loop;
  const ir::Load* load = nullptr;
  const ir::Store* store = nullptr;
  std::size_t lookups = 0;  // statements in front, which find the row
  std::size_t dim = 0;      // of the tensor, along the rows
  int elements = 0;         // of a piece
  bool may_be_cut = false;  // by the tensor's begin or end, or the end of a slice
  bool cuts_pieces = false;  // rows end within a piece; else pieces are there as a whole or not at all
  int unit = piece_bytes;    // rows begin at multiples of so many bytes
  // Threads copy no less than four bytes without waiting for them.
  bool holds_words() const { return elements > 1 && unit < 4; }
};

// Nothing for other loops, without a reason where they do not copy rows of a tensor as they are. Rows have no
// holes, and pieces begin at multiples of the unit, in tensors with aligned rows only.
Planned<RowCopy> plan_rows(const ir::Stmt& stmt);
// The same of a copy of a vector with elements of four bytes that begins where no box can: each is a row, and
// a piece, of its own.
Planned<RowCopy> plan_vector(const ir::Stmt& stmt);
// The same of a loop over all elements of a vector that finds each of them by computation, or by looking it
// up in tensors.
std::optional<RowCopy> plan_elements(const ir::Stmt& stmt);
// Rows, or such a copy: what threads bring without waiting for it.
Planned<RowCopy> plan_pieces(const ir::Stmt& stmt);

}  // namespace tegula::passes
