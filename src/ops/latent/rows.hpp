// Tiles of rows whose first features are values.
#pragma once
#include <optional>

#include "ops/pieces/features.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// A tensor of rows in two tensors: the values, and the features after them if there are any.
struct LatentTensor {
  lang::Tensor values;
  std::optional<lang::Tensor> rest;

  // Parameters `name`_values and `name`_rest of such extents, but for the features, which are `off` more.
  static LatentTensor input(const std::string& name, const lang::Extents& extents, int dim, int dim_v,
                            DType type, int off = 0);
  template <class... S>
  LatentTensor slice(const S&... at) const {
    LatentTensor result{values.slice(at...), {}};
    if (rest) result.rest.emplace(rest->slice(at...));
    return result;
  }
};

// The same of a tile.
struct LatentTile {
  lang::Shared values;
  std::optional<lang::Shared> rest;

  LatentTile(int rows, int dim, int dim_v, const TileFeatures& padded, DType type);
  // Rows from `first` on, or those that `rows` names: a tile of numbers, or a function of the place.
  void copy_from(const LatentTensor& from, const lang::Expr& first);
  // The same by threads, of rows that may begin anywhere and be longer than the tile's features.
  void load_from(const LatentTensor& from, const lang::Expr& first, int dim_v, int rest);
  template <class Rows>
  void gather_from(const LatentTensor& from, const Rows& rows) {
    lang::gather(from.values, rows, values);
    if (rest) lang::gather(*from.rest, rows, *rest);
  }
};

// scores += left · rightᵀ.
void add_scores(const LatentTile& left, const LatentTile& right, lang::Fragment& scores);

}  // namespace tegula::ops
