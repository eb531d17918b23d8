// How many slots each ring of a block with roles has: as many as its loop asks for, and at most as fit.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Decides depths, how many blocks share a processor, the threads of the producer, and what memory is left;
// and counts the registers of fragments. `asked`: slots of each ring.
void choose_depths(Roles& roles, const std::vector<int>& asked);

}  // namespace tegula::passes
