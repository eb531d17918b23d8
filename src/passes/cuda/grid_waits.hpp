// When the grids of a call wait for each other. The blocks of a grid may become resident while the last
// blocks of the previous grid run; they may use its results after their wait.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/kernel.hpp"

namespace tegula::passes {

enum class GridWait : std::uint8_t {
  never,  // the first: the stream holds it back
  at_begin,
  // Grids that share nothing that one of them writes run side by side. A block of such a grid waits before it
  // ends: who is over has waited for all before, and so the next grid need only wait for this one. When it
  // begins, the one before it has waited for all earlier ones: of two neighbours, one waits at its start.
  // Only that wait empties a processor's first-level cache: what such a grid reads of the call's own results,
  // nobody has read before it was written.
  at_end,
};

std::vector<GridWait> plan_grid_waits(const ir::Kernel& kernel);

}  // namespace tegula::passes
