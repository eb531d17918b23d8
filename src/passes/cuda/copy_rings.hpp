// Shared tiles that all threads of a block load some steps before they use them.
//
// In a block without roles, a tile that a step of a pipelined loop copies from tensors becomes a ring of
// slots: while the threads compute with one slot, copies into the others are in flight. A step waits for its
// own copies, synchronises all threads, issues the copies into the slot that the previous step has released,
// and computes. What the step does with its tiles does not matter.
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "passes/note.hpp"
#include "schedule/schedule.hpp"

namespace tegula::passes {

// The tiles of one loop, which come and go together.
struct CopyRing {
  int number = 0;  // of the ring, in the schedule too
  std::vector<ir::BufferPtr> tiles = {};
  int depth = 2;
  bool stays = false;      // in memory after the loop, for the next one
  bool goes_back = false;  // through the slots of the loop before it (loops_back.hpp), which has this number
  bool is_own = false;     // warps read only what they have copied themselves (own_copies.hpp)
  // In front of the loop, at the start and at the end of each step, after the loop. Events hold the
  // statements that they come from: copies into a slot, and what these need.
  schedule::Events before = {}, begin = {}, end = {}, after = {};
  // At the start of each step, too, where it has rows that are laid down: between lifting and laying, and
  // behind that.
  schedule::Events lifted = {}, laid = {};
};

struct CopyRings {
  std::unordered_map<const ir::StmtNode*, CopyRing> loops;  // by the loop's statement
  // Statements of their bodies that fill slots: the events do it instead.
  std::unordered_set<const ir::StmtNode*> fills;
  std::unordered_set<const ir::Buffer*> tiles;
  // Tiles that come as runs (run_copies.hpp), and with them those of which pieces are read wherever they
  // begin.
  std::unordered_set<const ir::Buffer*> runs, anywhere;
  std::unordered_set<const ir::Buffer*> laid;  // runs that threads shift once, since they read them again
  std::vector<Note> notes;                     // stages that loops do not have, tiles that do not come ahead

  bool empty() const { return loops.empty(); }
  int count() const;  // of rings: loops may share one
};

// Plans the rings of grid `number`, which has no roles.
CopyRings plan_copy_rings(const ir::Kernel& kernel, std::size_t number, const CudaTarget& target);

// What all threads do with the rings, to be simulated: four warps stand for all.
schedule::Schedule copy_ring_schedule(const std::string& name, const ir::Grid& grid, const CopyRings& rings);

}  // namespace tegula::passes
