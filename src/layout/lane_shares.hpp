// Sums whose elements the lanes of a warp share: as many exchanges as for one element of which every lane has
// the sum give each lane the sums of its part, and each is stored by a lane of its own.
#pragma once
#include <optional>

#include "layout/layout.hpp"

namespace tegula::layout {

// Of two registers that far apart, the lane with the lower number keeps the first, the one that many lanes
// behind it the second.
struct Halving {
  std::int64_t lanes, registers;
  friend bool operator==(const Halving&, const Halving&) = default;
};

struct LaneShares {
  Layout layout;
  std::vector<Halving> steps;  // registers are numbered anew after each
};

// Instead of a layout in which neighbouring lanes hold the same elements. Lanes take different coordinates in
// other dimensions than `along` where they can. Nothing where there are no such lanes, or not as many
// elements.
std::optional<LaneShares> share_among_lanes(const Layout& sums, int along);

}  // namespace tegula::layout
