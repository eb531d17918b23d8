// The number of features of tiles for given tensors.
#pragma once
#include <optional>
#include <tuple>

#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Tensor cores multiply 16 features at a time, from rows that are cut into blocks of 32, 64 or 128 bytes. So
// tiles have more features than the tensors, the others being zeros: what is outside of a tensor.
struct TileFeatures {
  int dim = 0, dim_v = 0;  // 0: as the tensors
  bool whole = false;      // products take all features of tiles, not only those that are no zeros
  // The tensors have rows of so many features beside them, which grids copy: the copy engine takes rows of 16
  // bytes or a multiple only.
  bool copied = false;
  // Only keys and values have them, which are read by many blocks: rows off the sectors of the cache cost
  // more.
  bool copied_keys = false;

  int of(int features) const { return dim > 0 ? dim : features; }
  int of_v(int features) const { return dim_v > 0 ? dim_v : features; }
  int multiplied(int features) const;
  int multiplied_v(int features) const;
  auto fields() const {
    const auto named = [](int features) { return features > 0 ? std::optional(features) : std::nullopt; };
    return std::tuple(labelled("in_", named(dim)), labelled("v_in_", named(dim_v)), labelled("whole", whole),
                      labelled("copied", copied), labelled("copied_keys", copied_keys));
  }
};

// The features of a GPU's tiles of this type, all of which are multiplied.
TileFeatures tile_features(int dim, int dim_v, DType compute);
// The same with rows of no fewer than 64 bytes: of gradients, whose tiles are operands in both orders.
TileFeatures gradient_features(int dim, int dim_v, DType compute);
// Where products leave out the zeros, tiles may have whole blocks of 128 bytes, which the copy engine and the
// tensor cores take fastest. Of more than 256 features, products take whole blocks, too.
TileFeatures wide_tile_features(int dim, int dim_v, DType compute);
// The same of tiles of 16 bits whose rows come as so many bytes.
TileFeatures byte_tile_features(int dim, int dim_v, DType compute);
// Whether rows of so many features of 16 bits begin within sectors of the cache, and are read often enough by
// products for that to count.
bool are_off_sectors(int dim);

// A workspace of this name with the rows of `tensor` [(batch,) tokens, heads, (group,) features], but so many
// features.
lang::Tensor with_features(const char* name, const lang::Tensor& tensor, int features);
// Records the grid that copies the rows of one to those of the other; the more features are `features`.
void copy_features(const lang::Tensor& from, const lang::Tensor& to, int features, bool batched);

}  // namespace tegula::ops
