// The steps of a block of the grid over a union list, for GPU programs.
#pragma once
#include <vector>

#include "ops/lists/union_lists.hpp"

namespace tegula::ops {

// The keys of one step: of a block those that a step holds, or of a few whole blocks one after the other.
class UnionStep {
 public:
  // Step t with `keys` keys of `blocks` blocks.
  UnionStep(const SelectedBlocks& c, int keys, int blocks, const UnionLists::List& list, const lang::Expr& t);

  void load(const lang::Tensor& from, lang::Shared& tile) const;
  // Whether a token selected block i.
  lang::Expr has(std::size_t i, const lang::Expr& token) const;
  // For each of so many runs of tokens, whether some token selected a block.
  std::vector<lang::Expr> chosen_by(int runs) const;
  // Scores [queries · pack, keys] of keys that a token does not see become −∞.
  void mask(lang::Fragment& scores, const TokenTile& tokens, int pack) const;

 private:
  int width() const { return keys_ / blocks_; }
  int steps_of_block() const { return (c_.block + keys_ - 1) / keys_; }
  lang::Expr is_cut(const TokenTile& tokens) const;
  lang::Expr is_missed() const;
  lang::Expr has_block_of(const lang::Expr& column, const lang::Expr& token, std::size_t i = 0) const;
  lang::Expr seen_end(std::size_t i, const TokenTile& tokens, const lang::Expr& token) const;
  lang::Expr seen_end(std::size_t i, const TokenTile& tokens, const lang::Expr& token,
                      const lang::Expr& column) const;

  SelectedBlocks c_;
  int keys_, blocks_;
  const UnionLists::List& list_;
  lang::Expr t_;
  std::vector<lang::Expr> first_, end_;          // of each block
  std::vector<std::vector<lang::Expr>> chosen_;  // the tokens that selected it: words of bits
};

}  // namespace tegula::ops
