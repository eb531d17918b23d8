// A checked call of the gradients of block-sparse attention: what the program gets.
#pragma once
#include "ops/attention/backward_call.hpp"
#include "ops/block_sparse/backward_kernel.hpp"
#include "ops/block_sparse/call.hpp"

namespace tegula::ops {

struct BlockSparseBackwardCall {
  BlockSparseBackwardKernel kernel;
  BlockSparseCall forward;
  BackwardInputs inputs;
  TensorRef choice, counts;  // a row for each head that chooses
};

// An ArgumentError if the arguments are wrong.
BlockSparseBackwardCall prepare_block_sparse_backward(const BackwardTensors& given, const TensorRef& q,
                                                      const TensorRef& k, const TensorRef& v,
                                                      const BlockSparseOptions& options,
                                                      std::optional<bool> for_gpu = {});
void run_block_sparse_backward(const BlockSparseBackwardCall& call, const BlockSparseOptions& options,
                               const GradientOutputs& outputs);

}  // namespace tegula::ops
