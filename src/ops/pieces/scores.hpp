// Which keys a tile of queries sees, and how its rows are loaded and stored if the heads of a group share the
// tile.
#pragma once
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// The window of a tile whose query r stands at position `position + r` of the keys.
class ScoreRange {
 public:
  // Sees the keys from `left` before its position to `right` after it; without one, all on that side. Of the
  // tile's `queries`, those from `count` on do not exist.
  ScoreRange(const lang::Expr& position, int queries, const lang::Expr& count, const lang::Expr& keys,
             const std::optional<lang::Expr>& left, const std::optional<lang::Expr>& right);

  // One past the last key that some query sees.
  lang::Expr end() const;
  // The key tiles in which some query sees something.
  lang::Range tiles(int keys_of_tile) const;
  // Whether some query does not see some of the keys from `first` on.
  lang::Expr is_partial(const lang::Expr& first, int keys_of_tile) const;
  lang::Expr sees(const lang::Expr& query, const lang::Expr& key) const;
  // One past the last key of a query.
  lang::Expr limit(const lang::Expr& query) const;

 private:
  lang::Expr position_;
  int queries_;
  lang::Expr count_, keys_;
  std::optional<lang::Expr> left_, right_;
};

// sum += weights · values, with the weights rounded to `type`.
void add_product(const lang::Fragment& weights, const lang::Shared& values, lang::Fragment& sum, DType type,
                 const lang::GemmOptions& options = {});

// How `byte_weights` orders keys: of each 16, the one that stands at `position`. Both extents of its fragment
// are powers of two, and the keys a multiple of 32.
lang::Expr key_at(const lang::Expr& position);
// Weights in 8 bits with the keys in that order, which products' operands have in registers: no thread gives
// another any. Values have to stand in the same order.
lang::Fragment byte_weights(const lang::Fragment& weights, DType type);

// Row r of the tile, a Shared or a Fragment, is query r / pack of head r % pack. `from` is [tokens, d], or
// [tokens, pack, d] if pack > 1.
template <class T>
void load_queries(const lang::Tensor& from, const lang::Expr& first, T& tile, int pack) {
  if (pack == 1)
    lang::copy(from.at(first), tile);
  else
    lang::copy(from.at(first), tile.reshape({tile.extent(0) / pack, pack, tile.extent(1)}));
}
void store_rows(const lang::Fragment& tile, const lang::Tensor& to, const lang::Expr& first, int pack);
// To [tokens], or [pack, tokens].
void store_lse(const lang::Fragment& lse, const lang::Tensor& to, const lang::Expr& first, int pack);

}  // namespace tegula::ops
