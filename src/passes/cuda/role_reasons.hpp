// Why a block has no roles, and what its producer cannot do: the reasons that specialize_roles gives.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Shared tiles that no ring can hold, and the first reason of each, with the place of a statement.
struct RefusedTile {
  ir::BufferPtr tile;
  Reason reason;
  bool is_load = false;  // it would be a copy from a tensor
};
using RefusedTiles = std::vector<RefusedTile>;
// Null if it is not among them.
const RefusedTile* find(const RefusedTiles& refused, const ir::BufferPtr& tile);

// Why no tile of a pipelined loop feeds wgmma; empty where no product is done by it.
Reason reason_of_loops(const ir::Grid& grid, const CudaTarget& target, const RefusedTiles& refused);
// Why products by wgmma that sum into one fragment cannot run beside each other; empty where they can.
Reason reason_of_layouts(const ir::Grid& grid, const CudaTarget& target);
// The reason for an exit, assertion or break that the producer cannot follow.
Reason reason_of_leaving(const ir::Stmt& s);

// What a statement that fills tiles of the ring does more slowly than by the copy engine or by rows.
void note_load(std::vector<Note>& notes, const ir::Stmt& fill, const RingPlan& ring, const Reason& engine);
// That the ring has fewer slots than its loop asks for.
void note_stages(Roles& roles, const RingPlan& ring);
// Pipelined loops that ask for stages and bring nothing ahead; tiles that the consumers load themselves.
void note_consumers(Roles& roles, const ir::Grid& grid, const RefusedTiles& refused);
// That two warp groups would hold what one cannot.
void note_warp_groups(Roles& roles, const ir::Grid& grid, const CudaTarget& target);

}  // namespace tegula::passes
