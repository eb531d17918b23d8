// Where consumers use the tiles of rings: where each is awaited, and after which part it is released.
#pragma once
#include <unordered_set>
#include <vector>

#include "passes/cuda/step_parts.hpp"

namespace tegula::passes {

// Statements of a body by their numbers.
struct RingUse {
  int ring;
  std::size_t first, last;
  std::vector<Release::Slot> slots;  // let go after the last one
  std::unordered_set<const ir::Buffer*> tiles = {};
};

// The rings whose tiles the body declares. A tile that is declared again is the ring's next one.
std::vector<RingUse> ring_uses(const ir::Body& statements, const Roles& roles,
                               const ConsumerProgram& program);
// The same for tiles of the step before, which nobody awaits: with them, where this step has tiles of the
// ring too, that goes on.
std::vector<RingUse> ring_uses_before(const ir::Body& statements, const std::vector<RingUse>& own,
                                      const Roles& roles, const ConsumerProgram& program);

}  // namespace tegula::passes
