// The events of a loop whose tiles are loaded ahead. Part of copy_rings.
#pragma once
#include "passes/cuda/copy_rings.hpp"

namespace tegula::passes {

// `bring`: the statements of one step that fill the tiles, and what they need. `again`: the loop may be
// entered more than once.
void add_events(CopyRing& ring, const ir::For& loop, const Loc& at, const ir::Body& bring, int warps,
                bool again);

// Of a loop that goes back over what `forward` has brought: `bring` is of a step of that one.
void add_events_back(CopyRing& ring, const ir::For& loop, const Loc& at, const ir::For& forward,
                     const ir::Body& bring, int warps);

// Of rows in the ring's slots that are laid down, which become known to all rings.
void add_laying(CopyRing& ring, CopyRings& rings, const ir::Grid& grid, const Loc& at);

inline constexpr int most_fills_of_a_tile = 16;  // in a step

// Warps that stand for all of a block in the simulation.
int simulated_warps(const ir::Grid& grid);

}  // namespace tegula::passes
