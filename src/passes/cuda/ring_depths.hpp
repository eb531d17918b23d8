// How many slots each ring of a block with roles has: as many as its loop requests, if they fit.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Shared memory per block if so many blocks share a processor.
std::int64_t shared_bytes_of(int blocks);

// How many blocks without roles the text promises to a processor: what the program asks for, as far as
// registers last where it has products.
int blocks_without_roles(const ir::Grid& grid, const CudaTarget& target);

// Decides depths, how many blocks share a processor, the threads of the producer, and what memory is left;
// and counts the registers of fragments. What a block takes beside rings is estimated from its tiles, until
// the grid's hints say what the printer has found: the printer's account is the one that holds, and where a
// plan by the estimate does not fit it, there is a second one. False if nothing fits then.
bool choose_depths(Roles& roles, const ir::GridHints& hints, const CudaTarget& target);

// Whether loops have two slots or as many as in `before`, without fewer blocks of a processor.
bool has_room_beside(Roles roles, Roles before, const ir::GridHints& hints, const CudaTarget& target);

}  // namespace tegula::passes
