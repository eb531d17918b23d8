// What is common to the tables of block-sparse attention and its gradient.
#pragma once
#include <set>

#include "ops/block_sparse/call.hpp"
#include "ops/pieces/attention_table.hpp"

namespace tegula::ops {

// Rows of a choice, one for every block of queries, by heads of k, for all query heads of a group, or of q;
// then `entries`. Packed sequences may have more than they need.
inline std::string choice_dims(const char* packed, const char* entries) {
  return fmt::format(
      "cu_seqlens_q ? sequences choosers q_blocks {} : batch choosers ceildiv(queries,q_block_size) {}",
      packed, entries);
}

// Whether a choice of packed sequences has what the longest needs. Of lengths that are not known, one is at
// least the mean.
template <class Op>
bool has_enough(const Bound<Op>& c, std::int64_t blocks, const char* tokens, const char* longest,
                std::int64_t promise, int block) {
  const std::int64_t sequences = c.dim("sequences");
  const bool known = c.device().is_cpu() || promise > 0 || sequences == 0;
  const std::int64_t least = known ? c.dim(longest) : lang::ceildiv(c.dim(tokens), sequences);
  return blocks >= lang::ceildiv(least, std::int64_t{block});
}
template <class Op>
bool has_rows(const Bound<Op>& c) {
  return !c.has("cu_seqlens_q") ||
         has_enough(c, c.dim("q_blocks"), "queries", "longest_q", c->max_seqlen_q, c->q_block_size);
}
template <class Op>
bool has_columns(const Bound<Op>& c) {
  return !c.has("cu_seqlens_q") || !c.has("mask") ||
         has_enough(c, c.dim("k_blocks"), "keys", "longest_k", c->max_seqlen_k, c->k_block_size);
}

// The choice of blocks, and the options beside it.
template <class Op>
void add_choice(Schema<Op>& table) {
  const char* heads = "{heads} heads, as q, or {kv_heads}, as k, in dimension 1";
  const char* remedy = "check q_block_size and k_block_size";
  table
      .in(&Op::indices, "indices", choice_dims("entries", "entries"), index,
          "numbers of the key blocks that a block of queries sees; other numbers, such as -1, select "
          "nothing; duplicates count once")
      .converts()
      .remedy(remedy)
      .range("-1", "ceildiv(keys,k_block_size)")
      .in(&Op::counts, "counts", choice_dims("", ""), index,
          "number of used entries of each row; all if omitted")
      .remedy(remedy)
      .range("0", "entries+2")
      .in(&Op::mask, "mask", choice_dims("k_blocks", "ceildiv(keys,k_block_size)"), is(boolean),
          "instead of indices: whether a block of queries sees a block of keys")
      .remedy(remedy)
      .with(add_packing<Op>)
      .option(&Op::q_block_size, "q_block_size", "queries of a block; the last block may be short",
              block_size)
      .option(&Op::k_block_size, "k_block_size", "keys of a block; the last block may be short", block_size)
      .option(&Op::causal, "causal",
              "hides later keys in the selected blocks; the last query is aligned with the last key")
      .with(add_scale<Op>)
      .with(add_softcap<Op>)
      .with(add_tiles<Op>)
      .let("heads", "kv_heads*group")
      .let("has_heads", "choosers == heads ? 1 : choosers == kv_heads")
      .require("indices", "indices + mask == 1", "either indices or mask", "give one of them")
      .require("counts", "counts <= indices", "counts with indices only", "leave it out")
      .require("indices", "indices ? has_heads : 1", heads, "give a row for each head")
      .require("mask", "mask ? has_heads : 1", heads, "give a row for each head")
      .require(
          "indices", [](const Bound<Op>& c) { return c.has("mask") || has_rows(c); },
          "a row for every block of queries of the longest sequence", remedy)
      .require(
          "mask", [](const Bound<Op>& c) { return !c.has("mask") || has_rows(c); },
          "a row for every block of queries of the longest sequence", remedy)
      .require("mask", has_columns<Op>, "all blocks of keys of the longest sequence", remedy);
}

// Pairs of a query and a key that the choice of a call has, of all heads.
double chosen_pairs(const BoundCall& bound, const BlockSparseOptions& options);

// Examples for the operator and its gradient; `more` is appended to each.
std::vector<Example> block_sparse_examples(const std::string& more);
std::vector<Example> block_sparse_measured();

}  // namespace tegula::ops
