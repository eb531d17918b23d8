// Loops that convert rows, for tiles all of whose rows exist: nothing is asked row by row.
#pragma once
#include <optional>
#include <vector>

#include "passes/cuda/plan_conversions.hpp"

namespace tegula::passes {

struct ExistingRows {
  RowConversion rows;                // without choices between rows
  std::vector<ir::Expr> conditions;  // under which it does what the loop does; no index is in them
};

// Where the place of a row is one of two that no index changes, such as that of a token before the end of its
// sequence and none, the first of them. Conditions are those of the row that meets them last.
ExistingRows existing_rows(const RowConversion& plan);

// Whether a coordinate is largest and smallest at the first and the last row, whatever the other indices are.
bool goes_by_row(const ir::For& loop, const ir::Expr& e);

}  // namespace tegula::passes
