#include "ops/pieces/features.hpp"

#include <algorithm>

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int step = 16;           // features that tensor cores multiply at a time
constexpr int block = 32;          // 64 bytes: rows of 32 bytes cost an eighth of the rate
constexpr int unit_of_engine = 8;  // 16 bytes
constexpr int sector = 16;
constexpr int whole_block = 64;    // 128 bytes
constexpr int most_widened = 128;  // above, the zeros would take the room of keys
constexpr int most_of_one_group = 256;
// Products of so many features, of which two warp groups share 27 times 16, are faster than of seven blocks.
constexpr int odd_products = 432;
constexpr int rows_of_copy = 32;

int rounded(int features, int unit) { return (features + unit - 1) / unit * unit; }
int in_blocks(int features) { return rounded(features, block); }
int padded(int features) { return features <= step ? step : in_blocks(features); }
// Each of two warp groups has a whole number of blocks, or seven halves. More than the columns of two warp
// groups are those of keys alone, over which sums of scores run.
int widened_for_groups(int features) {
  constexpr int most_uneven = 7 * whole_block, most_columns = 2 * most_of_one_group;
  const bool is_divided = features > most_uneven && features <= most_columns;
  return rounded(features, is_divided ? 2 * whole_block : whole_block);
}
int widened(int features) {
  if (features > most_of_one_group) return widened_for_groups(features);
  const int least = padded(features);
  return least <= block || least > most_widened || least == features ? least : rounded(features, whole_block);
}

// Rows of bytes are cut into blocks of 128, if they are longer than one of 64.
int widened_bytes(int features) {
  const int least = widened(features);
  return least <= block ? least : rounded(least, least <= whole_block ? whole_block : 2 * whole_block);
}

TileFeatures features_of(int dim, int dim_v, DType compute, int (*tile)(int)) {
  TileFeatures result;
  if (compute.bits() != 16) return result;
  if (tile(dim) != dim) result.dim = tile(dim);
  if (tile(dim_v) != dim_v) result.dim_v = tile(dim_v);
  result.copied = dim % unit_of_engine != 0 || dim_v % unit_of_engine != 0;
  return result;
}

}  // namespace

int TileFeatures::multiplied(int features) const {
  return dim == 0 || whole ? of(features) : rounded(features, step);
}
int TileFeatures::multiplied_v(int features) const {
  return dim_v == 0 || whole ? of_v(features) : rounded(features, step);
}

TileFeatures tile_features(int dim, int dim_v, DType compute) {
  return features_of(dim, dim_v, compute, padded);
}

TileFeatures gradient_features(int dim, int dim_v, DType compute) {
  return features_of(dim, dim_v, compute, in_blocks);
}

namespace {

TileFeatures wide_features(int dim, int dim_v, DType compute, int (*tile)(int)) {
  TileFeatures result = features_of(dim, dim_v, compute, tile);
  const int most = std::max(dim, dim_v);
  result.whole =
      most > most_of_one_group && rounded(most, step) != odd_products && (result.dim > 0 || result.dim_v > 0);
  return result;
}

}  // namespace

TileFeatures wide_tile_features(int dim, int dim_v, DType compute) {
  return wide_features(dim, dim_v, compute, widened);
}

TileFeatures byte_tile_features(int dim, int dim_v, DType compute) {
  return wide_features(dim, dim_v, compute, widened_bytes);
}

bool are_off_sectors(int dim) { return dim > whole_block && dim % sector != 0; }

Tensor with_features(const char* name, const Tensor& tensor, int features) {
  Extents extents;
  for (int d = 0; d + 1 < tensor.rank(); ++d) extents.push_back(tensor.extent(d));
  extents.push_back(features);
  return workspace(name, extents, tensor.type());
}

void copy_features(const Tensor& from, const Tensor& to, int features, bool batched) {
  const int tokens = batched ? 1 : 0;
  const bool grouped = from.rank() - tokens == 4;  // [.., tokens, heads, group, features]
  Expr members = grouped ? from.extent(tokens + 2) : Expr(Operand(1)),
       batches = batched ? from.extent(0) : Expr(Operand(1));
  const auto rows_of = [&](const Tensor& t, const Index& h, const Index& b) {
    if (!grouped) return batched ? t.slice(b, all, h) : t.slice(all, h);
    Expr head = h / members, member = h % members;
    return batched ? t.slice(b, all, head, member) : t.slice(all, head, member);
  };
  grid(ceildiv(from.extent(tokens), rows_of_copy), from.extent(tokens + 1) * members, batches,
       [&](Index x, Index h, Index b) {
         const Tensor source = rows_of(from, h, b), target = rows_of(to, h, b);
         Expr first = x * rows_of_copy;
         // Neighbouring threads read neighbouring elements, as rows begin anywhere.
         Shared rows("rows", {rows_of_copy, features}, from.type());
         parallel(rows, [&](Index i, Index j) { rows(i, j) = source(first + i, j); });
         copy(rows, target.at(first));
       });
}

}  // namespace tegula::ops
