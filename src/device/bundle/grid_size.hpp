// How many CTAs run the blocks of a grid.
#pragma once
#include <algorithm>
#include <cstdint>

namespace bundle {

// The processors hold `most` CTAs at once, each of which runs one block after the other. Where all blocks
// take the same time, fewer CTAs often need no round more, and leave their power to each other in every
// round: processors that would idle in the last round are left out, unless these are many, which memory would
// miss.
inline std::int64_t ctas_of_grid(std::int64_t blocks, std::int64_t most, bool is_even) {
  if (blocks <= most || !is_even) return std::min(blocks, most);
  const std::int64_t rounds = (blocks + most - 1) / most, least = (blocks + rounds - 1) / rounds;
  return least >= most - most / 16 ? least : most;
}

}  // namespace bundle
