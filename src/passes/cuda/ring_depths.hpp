// How many slots each ring of a block with roles has: as many as its loop asks for, and at most as fit.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

struct AskedSlots {
  int count = 1;
  bool in_loop = false;  // else a block fills the ring once
};

// Decides depths, how many blocks share a processor, and what memory is left. One entry a ring.
void choose_depths(Roles& roles, const std::vector<AskedSlots>& asked);

}  // namespace tegula::passes
