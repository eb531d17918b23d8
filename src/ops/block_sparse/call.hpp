// A checked call of block-sparse attention: what the program gets.
#pragma once
#include "ops/block_sparse/kernel.hpp"
#include "ops/pieces/heads.hpp"
#include "ops/schema/launch.hpp"
#include "tegula/ops/block_sparse_attention.hpp"

namespace tegula::ops {

struct BlockSparse : BlockSparseOptions {
  TensorRef q = {}, k = {}, v = {};
};
const OperatorSchema& block_sparse_attention_schema();

struct BlockSparseCall {
  BlockSparseKernel kernel;
  HeadTensors tensors;
  // A row for each query head, repeated where heads share one; only one of each group if the kernel says so.
  TensorRef choice, counts;
  bool per_query_head = false;  // heads of a group choose differently
  float scale = 1, softcap = 0;
  AttentionTiles tiles;
  std::int64_t longest = 0, longest_keys = 0;  // the most queries and keys of a sequence
  TensorRef q_begin, k_begin;                  // of packed sequences
};

// For the operator or its gradient, which have the same tensors and options.
BlockSparseCall block_sparse_call(const BoundCall& bound, const BlockSparseOptions& options,
                                  bool planned_for_gpu);
// Queries and heads with one list of blocks.
std::int64_t rows_of_list(const BlockSparseCall& call);
void run_block_sparse(const BlockSparseCall& call, Launch& launch);
// Whether lists of packed sequences, which have a row for every block that the longest may have, have far
// more than there are blocks.
bool has_unused_rows(const BlockSparseCall& call);
void note_unused_rows(const BlockSparseCall& call, Launch& launch);

}  // namespace tegula::ops
