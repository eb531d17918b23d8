// Calls between and around the examples of operators over rows.
#pragma once
#include <string>
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

// The words of an operator: the options of all of its calls, what counts rows, what a row has, and the
// options of each row of its map of widths.
struct RowWords {
  std::string base = "bf16", rows = "...", width = "d";
  std::vector<std::string> kinds = {"", "f16", "f32"};
};
std::vector<CallMap> row_maps(const RowWords& words);

}  // namespace tegula::ops
