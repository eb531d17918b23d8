// Performs a scan along a dimension of a fragment digit by digit of the coordinate, from the fastest to the
// slowest: each level combines neighbours of the level below.
#pragma once
#include <optional>
#include <vector>

#include "layout/layout.hpp"

namespace tegula::passes {

struct ScanLevel {
  enum class Kind { registers, lanes, threads };
  Kind kind;
  // Step and extent count registers that the levels below have left, or threads.
  std::int64_t step, extent;
  std::int64_t registers;  // that the level begins with
};

// Nothing if a digit moves the element along several dimensions.
std::optional<std::vector<ScanLevel>> scan_levels(const layout::Layout& layout, int dim);

}  // namespace tegula::passes
