// Conversions whose columns come from one tensor up to some column and from another one from there on: a loop
// for each range of columns, in which nothing chooses between them.
#pragma once
#include <vector>

#include "passes/cuda/moving_rows.hpp"

namespace tegula::passes {

// With pieces as they are in the whole loop: ranges begin where pieces do. The loop itself where it makes no
// choice by the column alone.
std::vector<RowConversion> column_ranges(const RowConversion& plan);

// The rows of each range, where all are found by moving and have pieces of one tensor; else none.
std::vector<MovingRows> moving_ranges(const RowConversion& plan);

}  // namespace tegula::passes
