// A checked call of the gradients of block-sparse attention: what the program gets.
#pragma once
#include "ops/block_sparse/backward_kernel.hpp"
#include "ops/block_sparse/call.hpp"
#include "tegula/ops/block_sparse_attention_backward.hpp"

namespace tegula::ops {

struct BlockSparseBackward : BlockSparseOptions, BlockSparseBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, out = {}, lse = {};
};
const OperatorSchema& block_sparse_attention_backward_schema();

struct BlockSparseBackwardCall {
  BlockSparseBackwardKernel kernel;
  BlockSparseCall forward;
  TensorRef choice, counts;  // a row for each head that chooses
};

BlockSparseBackwardCall block_sparse_backward_call(const Bound<BlockSparseBackward>& bound,
                                                   bool planned_for_gpu);
void run_block_sparse_backward(const BlockSparseBackwardCall& call, Launch& launch);

}  // namespace tegula::ops
