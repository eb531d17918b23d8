// Loops that write rows of a tensor, each at a place that is found for the row, such as one in a list: what is
// done once for a row, and what for each of its elements.
#pragma once
#include <optional>
#include <vector>

#include "ir/stmt.hpp"

namespace tegula::passes {

struct RowLoop {
  ir::Body row;         // the same for all columns, in order
  ir::Expr condition;   // under which the row is written; null: always
  ir::Body under;       // the same for all columns, if the condition holds
  ir::Body element;     // loads and values of each element
  ir::Stmt update;      // a store or an atomic addition
  const ir::Access* to = nullptr;
  ir::Expr value;

  bool finds_rows() const { return !row.empty() || condition; }
  bool looks_up() const;  // in memory
  bool adds() const;
  // What is found for the row and read for its elements.
  std::vector<ir::VariablePtr> found() const;
};

// Nothing for other loops. The last index goes along the rows, no element is read from a tensor, and no statement
// but the last one writes.
std::optional<RowLoop> row_loop(const ir::For& loop);
// The loop over elements alone, for when rows have been found.
ir::For elements_of(const ir::For& loop, const RowLoop& rows);

}  // namespace tegula::passes
