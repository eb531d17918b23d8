// Loops that go back over what the loop before them has read.
//
// A program that reads a row twice goes forward and then back: the second loop's step i takes the tiles of
// the first loop's step n − 1 − i. The last tiles of the first loop are still in the slots of its ring, so
// the second loop begins with them, and brings only those that have given way.
#pragma once
#include <optional>

#include "ir/stmt.hpp"

namespace tegula::passes {

struct RingLoop {
  const ir::For* loop = nullptr;
  ir::Body bring;  // what a step copies into slots
};

// The copies of the first loop into the tiles of the second, in terms of the first loop's index; nothing
// where the second loop does not go back over all that the first has copied.
std::optional<ir::Body> copies_again(const RingLoop& first, const RingLoop& second);

// The tiles of the second loop that such copies fill, in the order in which those of the first have slots.
std::vector<ir::BufferPtr> tiles_again(const std::vector<ir::BufferPtr>& tiles, const ir::Body& bring,
                                       const ir::Body& again);

}  // namespace tegula::passes
