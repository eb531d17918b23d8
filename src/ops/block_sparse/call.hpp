// A checked call of block-sparse attention: what the program gets.
#pragma once
#include "ops/attention/heads.hpp"
#include "ops/block_sparse/kernel.hpp"
#include "tegula/ops/block_sparse_attention.hpp"

namespace tegula::ops {

struct BlockSparseCall {
  BlockSparseKernel kernel;
  HeadTensors tensors;
  // A row for each query head, repeated where heads share one; only one of each group if the kernel says so.
  TensorRef choice, counts;
  bool per_query_head = false;  // heads of a group choose differently
  float scale = 1;
  std::int64_t longest = 0, longest_keys = 0;  // the most queries and keys of a sequence
  std::optional<TensorRef> cu_seqlens_q, cu_seqlens_k;
};

// An ArgumentError of `op` if the arguments are wrong. Planned for a GPU if the call runs on one, or as said.
BlockSparseCall prepare_block_sparse(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                     const BlockSparseOptions& options,
                                     const char* op = "block_sparse_attention",
                                     std::optional<bool> for_gpu = {});
// Arguments of the programs that only packed sequences have.
void push_sequences(const BlockSparseCall& call, std::vector<Argument>& values);
void run_block_sparse(const BlockSparseCall& call, const BlockSparseOptions& options,
                      const HeadOutputs& outputs);
// With check_indices, an ArgumentError if an entry names no block.
void check_block_sparse_indices(const Arguments& args, const BlockSparseCall& call,
                                const BlockSparseOptions& options);

}  // namespace tegula::ops
