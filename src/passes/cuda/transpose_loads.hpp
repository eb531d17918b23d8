// Tiles of 8-bit elements that the copy engine brings as their tensor has them and that warps transpose, or
// widen to tiles of 16-bit floats.
//
// Where warp groups multiply an operand that does not go along k in its tensor (turn_operands.hpp), or wider
// numbers than the tensor has (plan_widening.hpp), no thread of the producer but the one that begins loads
// has anything to do. The other three warps then run a program of their own: the part of the producer's
// program that makes each tile in the slot in which the consumers expect it from the one in which its bytes
// come. Both are rings, so that loads run ahead of the transposition, and the transposition ahead of the
// products. Vectors of single elements that are looked up, such as factors of rows, these warps bring as
// well. Rows to be widened that are looked up, which no box holds, threads of the producer copy.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Where the engine can bring everything else that the producer fills, and shared memory has room for the
// bytes. Before loads are planned.
void transpose_loads(Roles& roles, const ir::GridHints& hints, const CudaTarget& target);

}  // namespace tegula::passes
