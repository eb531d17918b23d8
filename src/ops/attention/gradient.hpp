// Pieces that the backward programs of attention share.
#pragma once
#include <functional>
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// How a tile of raw scores becomes weights and gradients. Tiles have queries as rows or as columns.
struct ScoreGradient {
  lang::Expr scale;               // of raw scores, with log2(e) (with a cap: over the cap), as in the forward
  std::optional<lang::Expr> cap;  // scores became cap · tanh(scale · raw)

  // A value for the score (i, j): of its query, or whether it counts.
  using Of = std::function<lang::Expr(const lang::Expr& i, const lang::Expr& j)>;
  struct Queries {
    Of lse;    // times log2(e), 0 for −∞
    Of delta;  // what is subtracted from the gradient of a weight
  };
  // `scores` become weights, where `partial` only those that `counts`; `products` of dout and values become
  // the gradients of the raw scores, but for factor().
  void apply(lang::Fragment& scores, lang::Fragment& products, const Queries& queries,
             const lang::Expr& partial, const Of& counts) const;
  lang::Expr factor() const;
};

// The part of a vector over queries, [tokens] or [pack, tokens], that belongs to the rows of a tile: row r is
// query first + r / pack of head r % pack. `tile` is a Shared or a Fragment.
template <class T>
void load_vector(const lang::Tensor& from, const lang::Expr& first, T& tile, int pack) {
  if (pack == 1)
    lang::copy(from.at(first), tile);
  else
    lang::copy(from.at(0, first), tile.reshape({tile.extent(0) / pack, pack}).T());
}

// lse in natural logarithm becomes what ScoreGradient wants.
void use_lse(lang::Tile& lse);

// Shapes and views of the tensors of one query head: [tokens, features] and [tokens].
struct HeadRows {
  lang::Tensor dout, out, lse, delta;
  std::optional<lang::Tensor> dlse;
  int dim_v = 0;
};
inline constexpr int delta_rows = 64;
// delta = sum(dout · out) − dlse for delta_rows rows from `first` on.
void write_delta(const HeadRows& rows, const lang::Expr& first);

// x times a factor, for all elements.
void scale_all(lang::Fragment& x, const lang::Expr& factor);

}  // namespace tegula::ops
