// Lines that the tables of attention to a cache share, and what their formulas and plans have in common.
#pragma once
#include <functional>
#include <string>

#include "ops/attention/plan.hpp"
#include "ops/decode/cache_rows.hpp"
#include "ops/pieces/attention_table.hpp"
#include "ops/pieces/splits.hpp"
#include "ops/reference/softmax.hpp"

namespace tegula::ops {

// Dims of a tensor with an element, or a row of features, for each token of a cache.
inline std::string cache_dims(const char* of_token) {
  return fmt::format("block_table ? pages page_size {0} : batch keys {0}", of_token);
}

// Table and lengths; `room` is how many tokens a sequence may have.
template <class Op>
void add_cache_places(Schema<Op>& table) {
  table
      .in(&Op::block_table, "block_table", "batch table_width", index,
          "page numbers of each sequence, in order; an entry that is no page number, such as -1, is padding")
      .remedy("give every sequence a row")
      .range("0-1", "pages+1")
      .in(&Op::cache_seqlens, "cache_seqlens", "batch", index,
          "length of each sequence, including the tokens of q; if omitted, sequences fill the cache")
      .remedy("give every sequence a length")
      .range("0", "room+1")
      .let("room", "block_table ? table_width*page_size : keys")
      .require("block_table", "room < 536870912", "a capacity of fewer than 2^29 tokens",
               "give shorter tables");
}

// These, and the mask of the last tokens.
template <class Op>
void add_cache_rows(Schema<Op>& table) {
  add_cache_places(table);
  table.in(&Op::tree_mask, "tree_mask", "~batch queries queries", is(boolean),
           "which of the last tokens each of them sees; all of them see the tokens before");
}

template <class Op>
void add_last_queries(Schema<Op>& table) {
  const OptionRule before{-1, {}, false, "a number of keys, or -1 for all", "leave it out"};
  table.option(&Op::causal, "causal", "hides later keys; the last query is aligned with the last key")
      .option(&Op::left, "left", "keys before its position that a query sees; -1: all of them", before)
      .require("tree_mask", "tree_mask ? causal == 0 & left < 0 : 1", "neither causal nor left with it",
               "say it in the mask");
}

template <class Op>
void add_splits(Schema<Op>& table) {
  table.option(
      &Op::splits, "splits", "splits of the keys of a sequence, by its own length; 0: planned",
      between(0, most_splits, fmt::format("a number from 1 to {}, or 0 for the plan's choice", most_splits),
              "leave it out"));
}

inline constexpr const char* out_of_cache = "the weighted sums of values; 0 where no key is seen";
inline constexpr const char* lse_of_cache =
    "natural logarithm of the sum of exp(score); -inf where no key is seen, with a sink its logit";

// Splits of the keys of a sequence, for blocks of tiles of so many queries and keys: `heads` tiles of heads.
struct SplitProblem {
  std::int64_t batch = 1, heads = 1, queries = 1, keys = 1, left = -1;
  int tile_queries = 1, tile_keys = 64, dim = 64, dim_v = 64;
};
int plan_cache_splits(const SplitProblem& p, DType type, bool on_gpu);
// Whether blocks of long sequences come before those of short ones; each sequence has so many.
bool deals_longest_first(const BoundCall& call, std::int64_t blocks_of_sequence);
// Whether keys are divided among blocks by the lengths of sequences, whose rows of all heads have so many
// bytes, and into how many shares, where equal sequences would have so many splits each.
bool shares_keys(const BoundCall& call, std::int64_t blocks_of_sequence, std::int64_t row_bytes,
                 std::int64_t least_bytes);
// Whether blocks are no more than processors. Behind so few of them, others without work would change which
// processors they get: measured, 8 sequences of 32768 keys take 9 % longer.
bool is_one_round(const BoundCall& call, std::int64_t blocks_of_sequence);
int shares_of_splits(const BoundCall& call, std::int64_t blocks_of_sequence, int splits);

// The keys of sequence b of a call, by the formula: for each of its tokens, which are `length`, the page and
// the row there, or the page −1.
struct SequencePlaces {
  std::int64_t length = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> places;

  SequencePlaces(const BoundCall& call, std::int64_t b);
};
// The visibility rule of a sequence.
reference::Sight sight_of(const BoundCall& call, std::int64_t b, const SequencePlaces& sequence, bool causal,
                          std::int64_t left);

}  // namespace tegula::ops
