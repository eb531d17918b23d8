// Lists of packed sequences by token, from those by sequence and token.
#pragma once
#include "ops/block_sparse/call.hpp"

namespace tegula::ops {

struct TokenListsKernel {
  bool counts = false;
  auto fields() const { return std::tuple(labelled("counts", counts)); }
};

// Arguments: choice [sequences, kv heads, members, q_blocks, entries] of blocks of a single query, lists
// [tokens, kv heads, members, entries], q_begin [sequences + 1], the most queries of a sequence; then counts
// and lengths alike without entries.
lang::Kernel token_lists_kernel(const TokenListsKernel& instance);

struct TokenLists {
  Tensor choice, counts;  // as its lists and lengths
};

// `choice` and `counts` are those of the call, a row for each head that chooses.
TokenLists lists_by_tokens(const BlockSparseCall& call, const TensorRef& choice, const TensorRef& counts,
                           Launch& launch);

}  // namespace tegula::ops
