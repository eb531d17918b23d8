// Tiles of block-sparse attention for tensor cores, for any block sizes.
#pragma once
#include "ops/block_sparse/call.hpp"

namespace tegula::ops {

// Whether warp groups multiply tiles of the kernel: 16 bits, features in multiples of 16.
bool multiplies_by_groups(const BlockSparseKernel& kernel);
// Rows of the tiles whose sums two warp groups hold.
int most_tensor_rows(int dim);
// Rows of whole warp groups, of queries of one head or of all heads of a group that choose alike: those of
// which the fewest stay empty.
void plan_tensor_rows(BlockSparseCall& call);
// Columns in multiples of 16, after the rows: one of the equal steps of a block, one block or several whole
// ones.
void plan_tensor_keys(BlockSparseKernel& kernel);
// The same of gradients, in tiles of one warp group.
void plan_gradient_rows(const BlockSparseCall& call, BlockSparseKernel& kernel);
void plan_gradient_keys(BlockSparseKernel& kernel);

}  // namespace tegula::ops
