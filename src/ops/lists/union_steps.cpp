#include "ops/lists/union_steps.hpp"

#include <algorithm>

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

Expr any_of(const std::vector<Expr>& conditions, std::size_t count) {
  return count == 1 ? conditions[0] : any_of(conditions, count - 1) || conditions[count - 1];
}

Expr word_of(const std::vector<Expr>& words, const Expr& token, std::size_t last) {
  if (last == 0) return words[0];
  return select(token < static_cast<int>(last) * UnionLists::word_bits, word_of(words, token, last - 1),
                words[last]);
}

}  // namespace

UnionStep::UnionStep(const SelectedBlocks& c, int keys, int blocks, const UnionLists::List& list,
                     const Expr& t)
    : c_(c), keys_(keys), blocks_(blocks), list_(list), t_(t) {
  for (int i = 0; i < blocks; ++i) {
    Expr n = blocks > 1 ? t * blocks + i : steps_of_block() > 1 ? t / steps_of_block() : t;
    Expr there = blocks > 1 ? min(n, list.count - 1) : n;
    Expr begin = list.blocks(there) * c.block;
    first_.push_back(steps_of_block() > 1 ? begin + t % steps_of_block() * keys : begin);
    end_.push_back(begin + c.block);
    chosen_.emplace_back();
    for (int w = 0; w < ceildiv(c.queries, UnionLists::word_bits); ++w) {
      Expr bits = list.chosen(there, w);
      chosen_.back().push_back(blocks > 1 ? select(n < list.count, bits, u32(0)) : bits);
    }
  }
}

void UnionStep::load(const Tensor& from, Shared& tile) const {
  if (blocks_ == 1) return copy(from.at(first_[0]), tile);
  for (std::size_t i = 0; i < first_.size(); ++i) {
    const int begin = static_cast<int>(i) * width();
    copy(from.at(first_[i]), tile.slice(range(begin, begin + width()), all));
  }
}

Expr UnionStep::has(std::size_t i, const Expr& token) const {
  Expr word = word_of(chosen_[i], token, chosen_[i].size() - 1);
  return ((word >> u32(token % UnionLists::word_bits)) & 1u) != 0u;
}

std::vector<Expr> UnionStep::chosen_by(int runs) const {
  const int tokens = c_.queries / runs;
  std::vector<Expr> result;
  for (int run = 0; run < runs; ++run) {
    std::vector<Expr> reasons;
    for (const std::vector<Expr>& words : chosen_)
      for (std::size_t w = 0; w < words.size(); ++w) {
        const int begin = std::max(run * tokens - static_cast<int>(w) * UnionLists::word_bits, 0),
                  end = std::min((run + 1) * tokens - static_cast<int>(w) * UnionLists::word_bits,
                                 UnionLists::word_bits);
        if (begin >= end) continue;
        const std::uint32_t bits = ~std::uint32_t{0} >> (UnionLists::word_bits - (end - begin)) << begin;
        reasons.push_back((words[w] & bits) != 0u);
      }
    result.push_back(any_of(reasons, reasons.size()));
  }
  return result;
}

// Whether some token would not see all keys of its blocks.
Expr UnionStep::is_cut(const TokenTile& tokens) const {
  if (!c_.repeats && c_.block % width() == 0)
    return t_ >= (blocks_ > 1 ? list_.whole / blocks_ : list_.whole * steps_of_block());
  std::vector<Expr> reasons;
  for (std::size_t i = 0; i < first_.size(); ++i) {
    Expr behind = first_[i] + width();
    reasons.push_back(behind > tokens.limit(Operand(0)));
    if (c_.block % width() != 0) reasons.push_back(behind > end_[i]);
  }
  return any_of(reasons, reasons.size());
}

// Whether some token did not select all blocks.
Expr UnionStep::is_missed() const {
  std::vector<Expr> reasons;
  for (const std::vector<Expr>& words : chosen_)
    for (std::size_t w = 0; w < words.size(); ++w) {
      const int tokens_of_word =
          std::min(UnionLists::word_bits, c_.queries - static_cast<int>(w) * UnionLists::word_bits);
      reasons.push_back(words[w] != u32(~std::uint32_t{0} >> (UnionLists::word_bits - tokens_of_word)));
    }
  return any_of(reasons, reasons.size());
}

// The block of a column, one of those from i on.
Expr UnionStep::has_block_of(const Expr& column, const Expr& token, std::size_t i) const {
  if (i + 1 == first_.size()) return has(i, token);
  return select(column < static_cast<int>(i + 1) * width(), has(i, token),
                has_block_of(column, token, i + 1));
}

// One past the last column of block i that the token sees.
Expr UnionStep::seen_end(std::size_t i, const TokenTile& tokens, const Expr& token) const {
  Expr limit = tokens.limit(token), last = c_.block % width() == 0 ? limit : Expr(min(limit, end_[i]));
  return select(has(i, token), last - first_[i] + static_cast<int>(i) * width(), 0);
}

// The same for the block of a column, one of the blocks from i on.
Expr UnionStep::seen_end(std::size_t i, const TokenTile& tokens, const Expr& token,
                         const Expr& column) const {
  Expr own = seen_end(i, tokens, token);
  if (i + 1 == first_.size()) return own;
  return select(column < static_cast<int>(i + 1) * width(), own, seen_end(i + 1, tokens, token, column));
}

// Where a token sees a block, it mostly sees all of it: that takes one question a row and block.
void UnionStep::mask(Fragment& scores, const TokenTile& tokens, int pack) const {
  when(is_cut(tokens), [&] {
    parallel(scores, [&](Index r, Index column) {
      Expr token = r / pack;
      scores(r, column) = select(column < seen_end(0, tokens, token, column), scores(r, column), -inf);
    });
  }).otherwise([&] {
    if (blocks_ > 1)
      when(is_missed(), [&] {
        parallel(scores, [&](Index r, Index column) {
          scores(r, column) = select(has_block_of(column, r / pack), scores(r, column), -inf);
        });
      });
  });
}

}  // namespace tegula::ops
