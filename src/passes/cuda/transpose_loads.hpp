// Tiles of 8-bit elements that the copy engine brings as their tensor has them and that warps transpose.
//
// Where warp groups multiply an operand that does not go along k in its tensor (turn_operands.hpp), no thread
// of the producer but the one that begins loads has anything to do. The other three warps then run a program
// of their own: the part of the producer's program that transposes each tile from the slot in which it comes
// to the slot in which the consumers expect it. Both are rings, so that loads run ahead of the transposition,
// and the transposition ahead of the products.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Where the engine can bring everything that the producer fills. Before loads are planned.
void transpose_loads(Roles& roles);

}  // namespace tegula::passes
