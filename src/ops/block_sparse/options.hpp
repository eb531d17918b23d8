// The options of block-sparse attention from those of the registry.
#pragma once
#include "ops/registry.hpp"
#include "tegula/ops/block_sparse_attention.hpp"

namespace tegula::ops {

BlockSparseOptions block_sparse_options(const Tensors& inputs, const Options& options,
                                        Target target = Target::automatic());

}  // namespace tegula::ops
