// Shared tiles that copies or loops over elements fill, row by row: candidates for rings.
#pragma once
#include <vector>

#include "passes/cuda/ring_candidates.hpp"
#include "passes/cuda/role_reasons.hpp"

namespace tegula::passes {

struct FilledTiles {
  std::vector<RingCandidate> candidates;
  RefusedTiles refused;

  // The first reason of a tile counts; without a place of its own it has the statement's.
  void refuse(const ir::BufferPtr& tile, const ir::Stmt& fill, Reason reason);
};

// Candidates point into the body.
FilledTiles filled_tiles(const ir::Body& body);

bool touches_fragments(const ir::Stmt& s);

}  // namespace tegula::passes
