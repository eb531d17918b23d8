// Checked calls of the operators that choose blocks: what the programs get.
#pragma once
#include <vector>

#include "ops/selection/kernels.hpp"
#include "tegula/ops/selection.hpp"

namespace tegula::ops {

struct BlockScoresCall {
  BlockScoresKernel kernel;
  TensorRef q, k;
  Shape out_shape;
  float scale = 1;
};

// ArgumentErrors if the arguments are wrong.
BlockScoresCall prepare_block_scores(const TensorRef& q, const TensorRef& k,
                                     const BlockScoresOptions& options);
TopkKernel prepare_topk(const TensorRef& scores, std::int64_t count, const TopkBlocksOptions& options);

}  // namespace tegula::ops
