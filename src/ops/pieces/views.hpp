// What of attention's tensors a block works on: one sequence, one key head, one member of its group
// of query heads, or all of them.
#pragma once
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// Asserts what a call has promised of packed sequences.
void assert_queries(const lang::Expr& count, const lang::Expr& most);
void assert_keys(const lang::Expr& count, const lang::Expr& most);

lang::Extents joined(const lang::Extents& first, const lang::Extents& second);

// Sequence b of a batch, or of packed sequences where there are fences.
struct SequenceRows {
  lang::Expr b;
  bool packed;
  lang::Range queries, keys;

  SequenceRows(const lang::Expr& sequence, const lang::Range& queries, const lang::Range& keys,
               bool packed = false)
      : b(sequence), packed(packed), queries(queries), keys(keys) {}
  SequenceRows(const lang::Expr& sequence, const lang::Expr& queries, const lang::Expr& keys)
      : SequenceRows(sequence, lang::range(0, queries), lang::range(0, keys)) {}
  SequenceRows(const lang::Expr& sequence, const lang::Tensor& q_begin, const lang::Tensor& k_begin)
      : b(sequence),
        packed(true),
        queries(lang::range(q_begin(sequence), q_begin(sequence + 1))),
        keys(lang::range(k_begin(sequence), k_begin(sequence + 1))) {}

  // The same sequence with only some of its queries, counted from its first.
  SequenceRows with_queries(const lang::Range& some) const {
    if (!packed) return {b, some, keys};
    return {b, lang::range(queries.begin + some.begin, queries.begin + some.end), keys, true};
  }
  // The first `count` keys only.
  SequenceRows with_keys(const lang::Expr& count) const {
    return {b, queries, lang::range(keys.begin, keys.begin + count), packed};
  }
};

struct HeadViews {
  SequenceRows rows;
  lang::Expr kv_head;
  lang::Subscript member;  // `all` keeps the dimension

  // [batch, tokens, kv heads, group, …] becomes [tokens, (group,) …].
  lang::Tensor of_queries(const lang::Tensor& t) const;
  // [batch, tokens, kv heads, …] becomes [tokens, …].
  lang::Tensor of_keys(const lang::Tensor& t) const;
  // [batch, kv heads, group, tokens] becomes [(group,) tokens].
  lang::Tensor vector(const lang::Tensor& t) const;
};

// What of a vector over queries, [tokens] or [pack, tokens], that belongs to the rows of a tile. `tile`
// is a Shared or a Fragment.
template <class T>
void load_vector(const lang::Tensor& from, const lang::Expr& first, T& tile, int pack) {
  if (pack == 1)
    lang::copy(from.at(first), tile);
  else
    lang::copy(from.at(0, first), tile.reshape({tile.extent(0) / pack, pack}).T());
}

}  // namespace tegula::ops
