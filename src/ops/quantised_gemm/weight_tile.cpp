#include "ops/quantised_gemm/weight_tile.hpp"

#include "lang/packed_numbers.hpp"
#include "ops/products/low_bits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// The weight of column j in the order of packed_weights: the element of a row that has it, and its place
// there.
Expr packed_weight(const PackedShared& tile, bool shifts, const Expr& row, const Index& j) {
  const bool words = tile.type().storage == u32;
  Expr element = words ? j / 64 * 8 + j % 8 / 2 * 2 + j % 64 / 32
                       : j / 64 * 32 + j % 8 / 2 * 8 + j % 64 / 16 * 2 + j / 8 % 2;
  const PackedPlace place =
      words ? PackedPlace{j / 8 % 2 * 8 + j % 2 * 4, j / 16 % 2 == 1, shifts} : PackedPlace{j % 2 * 4};
  return packed_as_f32(tile.type(), tile.elements()(row, element), place);
}

}  // namespace

GroupNumbers::GroupNumbers(const Tensor& numbers, bool by_group, const Expr& row, const Expr& group, int rows,
                           int groups)
    : tile_({by_group ? groups : rows, by_group ? rows : groups}, numbers.type()), by_group_(by_group) {
  copy(by_group ? numbers.at(group, row) : numbers.at(row, group), tile_);
}

Expr GroupNumbers::at(const Index& row, const Expr& group) const {
  return by_group_ ? Expr(tile_(group, row)) : Expr(tile_(row, group));
}

WeightTile::WeightTile(const QuantisedWeights& weights, const QuantisedMatrix& matrix, const Expr& row,
                       const Expr& first, Extents extents, bool with_scales)
    : w_(weights),
      rows_(extents.rows),
      columns_(extents.columns),
      groups_(w_.group == 0 ? 1 : std::max(1, extents.columns / w_.group)),
      columns_of_group_(extents.columns / groups_),
      b_({extents.rows * extents.parts, extents.columns / extents.parts}, w_.stored()) {
  Expr group = w_.group == 0 ? Expr(0) : first / w_.group;
  load_weights(matrix, row, first, extents.parts);
  if (with_scales) scales_.emplace(matrix.scales, w_.by_group, row, group, extents.rows, groups_);
  if (matrix.zeros) zeros_.emplace(*matrix.zeros, w_.zeros_by_group, row, group, extents.rows, groups_);
}

void WeightTile::load_weights(const QuantisedMatrix& matrix, const Expr& row, const Expr& first, int parts) {
  if (parts == 1) return copy(matrix.b.at(row, first), b_);
  const Tensor elements = matrix.b.elements();
  const int in_element = w_.stored().in_element(), columns = columns_ / parts / in_element;
  for (int part = 0; part < parts; ++part)
    copy(elements.at(row, first / in_element + part * columns),
         b_.elements().slice(range(part * rows_, (part + 1) * rows_)));
}

Expr WeightTile::first_group(const WeightPart& part) const {
  return part.number && groups_ > 1 ? *part.number * groups_ / part.count : Expr(0);
}
Expr WeightTile::group_of(const Index& j, const WeightPart& part) const {
  if (columns_ / part.count <= columns_of_group_) return first_group(part);
  return first_group(part) + j / columns_of_group_;
}

Expr WeightTile::number(const Index& i, const Index& j, bool shifts, const WeightPart& part) const {
  const Expr row = part.number ? *part.number * rows_ + i : Expr(i);
  Expr q = w_.packed ? packed_weight(b_, shifts, row, j) : b_.as_f32(row, j);
  return zeros_ ? q - f32(zeros_->at(i, group_of(j, part))) : q;
}

Expr WeightTile::scale(const Index& i, const Index& j, const WeightPart& part) const {
  return scale_of(scales_->at(i, group_of(j, part)), w_.scale);
}
Expr WeightTile::scale(const Index& i, const WeightPart& part) const {
  return scale_of(scales_->at(i, first_group(part)), w_.scale);
}

}  // namespace tegula::ops
