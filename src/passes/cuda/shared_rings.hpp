// Which tiles share a ring: one barrier tells that all of them are there, and all are let go together.
#pragma once
#include <vector>

#include "ir/stmt.hpp"

namespace tegula::passes {

// A tile that the producer brings, and the first and last statement of the scope by which consumers use it.
struct RingTile {
  ir::BufferPtr tile;
  const ir::Body* scope = nullptr;
  std::size_t first = 0, last = 0;
  bool awaited = false;    // by the producer itself, which may need it for other tiles
  bool in_pieces = false;  // by threads, and not awaited where boxes are
  bool is_box = false;     // by the copy engine
};

// The tiles of each ring. Those that are used at the same places share one. So does what is small beside a
// tile that is there for as long, such as a vector of its rows: it is awaited sooner and let go later than it
// had to be, for which consumers meet one barrier less, and need no fence of their own behind their reads.
std::vector<std::vector<const RingTile*>> shared_rings(const std::vector<RingTile>& tiles);

}  // namespace tegula::passes
