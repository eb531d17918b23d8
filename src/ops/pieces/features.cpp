#include "ops/pieces/features.hpp"

#include <algorithm>

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int step = 16;             // features that tensor cores multiply at a time
constexpr int block = 32;            // 64 bytes: rows of 32 bytes cost an eighth of the rate
constexpr int unit_of_engine = 8;    // 16 bytes
constexpr int rows_of_copy = 64;

int padded(int features) {
  const int unit = features <= step ? step : block;
  return (features + unit - 1) / unit * unit;
}

}  // namespace

TileFeatures tile_features(int dim, int dim_v, DType compute) {
  TileFeatures result;
  if (compute.bits() != 16) return result;
  if (padded(dim) != dim) result.dim = padded(dim);
  if (padded(dim_v) != dim_v) result.dim_v = padded(dim_v);
  result.copied = dim % unit_of_engine != 0 || dim_v % unit_of_engine != 0;
  return result;
}

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
         Fragment rows = load(rows_of(from, h, b).at(x * rows_of_copy), {rows_of_copy, features});
         copy(rows, rows_of(to, h, b).at(x * rows_of_copy));
       });
}

}  // namespace tegula::ops
