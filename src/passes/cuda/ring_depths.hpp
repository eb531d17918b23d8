// How many slots each ring of a block with roles has: as many as its loop asks for, and at most as fit.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Decides depths, how many blocks share a processor, the threads of the producer, and what memory is left.
// `asked`: slots of each ring.
void choose_depths(Roles& roles, const std::vector<int>& asked);
// That all fragments of a consumer would take together.
std::int64_t fragment_registers(const Roles& roles);

}  // namespace tegula::passes
