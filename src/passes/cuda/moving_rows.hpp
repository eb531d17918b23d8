// Rows that a producer's threads convert and that are equally far apart in every tensor they come from: a
// thread finds its first row and goes from one to the next by additions.
#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "passes/cuda/plan_conversions.hpp"

namespace tegula::passes {

struct MovingRows {
  RowConversion rows;
  // By how much a row's coordinates in a tensor are larger than those of the row before, for each load of the
  // loop's body that is another one in each row. Other statements of rows are the same for all rows.
  std::unordered_map<const ir::StmtNode*, std::vector<std::int64_t>> steps;
};

// Nothing where a row is looked up, where the program computes with the number of a row, and where a loop
// reads tiles.
std::optional<MovingRows> moving_rows(const RowConversion& plan);

}  // namespace tegula::passes
