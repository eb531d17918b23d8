// The blocks that a tile of neighbouring tokens selected, each once, and which token selected which.
#pragma once
#include <optional>

#include "ops/lists/selected_blocks.hpp"
#include "ops/lists/walk.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

// Tokens of a tile within their sequence.
struct TokenTile {
  SelectedBlocks c;
  lang::Expr first, count;  // the first token of the tile, and the tokens of the sequence
  lang::Expr keys;
  std::optional<lang::Expr> behind = {};  // tokens that come after those

  lang::Expr position(const lang::Expr& token) const {
    lang::Expr at = first + token + keys - count;
    return behind ? at - *behind : at;
  }
  // One past the last key that a token of the tile may see.
  lang::Expr limit(const lang::Expr& token) const;
};

// The lists of one head: choice [tokens, entries], counts [tokens].
struct Selection {
  lang::Tensor choice;
  std::optional<lang::Tensor> counts;

  // The number of entry e of a token of the tile, or no_row if it selects nothing. Entry c.entries is the
  // block of the token itself.
  lang::Expr block(const TokenTile& tile, const lang::Expr& token, const lang::Expr& e) const;
  // How many entries of a token count.
  lang::Expr length(const lang::Expr& token) const;
};
// Of the tensors over all heads, the lists of one.
Selection selection_of_head(const HeadViews& head, const lang::Tensor& choice,
                            const std::optional<lang::Tensor>& counts);

// In the order of their first appearance.
class UnionList {
 public:
  UnionList(const TokenTile& tile, const Selection& selection);

  lang::Expr block(const lang::Expr& n) { return list_(n); }
  lang::Expr count() const { return count_; }
  // How often a token of the tile selected the n-th block; wanted only if c.has_times().
  lang::Expr times(const lang::Expr& n, const lang::Expr& token) { return times_(n, token); }
  // Entries of a token, that of its own block included.
  int width() const { return width_; }
  // For an entry, with the entries of a token contiguous: whether it selects a block, whether it is the first
  // of its token to do so, and the position of the block in the list.
  lang::Expr selects(const lang::Expr& entry) { return named_(entry) != no_row; }
  lang::Expr is_first(const lang::Expr& entry);
  lang::Expr place(const lang::Expr& entry) { return place_(first_of_(entry)); }

 private:
  SelectedBlocks c;
  int width_;
  lang::Shared list_, times_;
  lang::Shared named_, first_of_, place_;  // of every entry; place_ of the first ones only
  lang::Var count_;
};

}  // namespace tegula::ops
