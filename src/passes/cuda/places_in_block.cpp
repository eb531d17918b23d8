#include "passes/cuda/places_in_block.hpp"

#include <algorithm>

#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_fixed(const Expr& e, const std::vector<VariablePtr>& of_grid) {
  bool fixed = true;
  for_each_variable(e, [&](const VariablePtr& v) {
    const bool of_call = v->kind == VariableKind::dim || v->kind == VariableKind::scalar ||
                         v->kind == VariableKind::processors;
    fixed &= of_call || contains(of_grid, v);
  });
  return fixed;
}

}  // namespace

PlacesInBlock places_in_block(const View& view, const std::vector<Expr>* index,
                              const std::vector<VariablePtr>& of_grid) {
  PlacesInBlock result;
  if (view.is_tile() || !is_own_shape(view)) return result;
  const std::vector<Expr> at = index ? coordinates({view, *index}) : std::vector<Expr>{};
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    if (!index && view.dims[d].axis >= 0) continue;
    const Expr& e = index ? at[d] : view.dims[d].offset;
    if (!has_affine_form(e->held()) || !is_fixed(e, of_grid)) continue;
    Affine base = affine(e);
    const std::int64_t offset = std::exchange(base.constant, 0);
    result.push_back({static_cast<int>(d), std::move(base), offset});
  }
  return result;
}

bool are_apart(const PlacesInBlock& a, const PlacesInBlock& b) {
  return std::any_of(a.begin(), a.end(), [&](const PlaceInBlock& x) {
    return std::any_of(b.begin(), b.end(), [&](const PlaceInBlock& y) {
      return x.dim == y.dim && x.offset != y.offset && equal(x.base, y.base);
    });
  });
}

bool are_same(const PlacesInBlock& a, const PlacesInBlock& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const PlaceInBlock& x, const PlaceInBlock& y) {
    return x.dim == y.dim && x.offset == y.offset && equal(x.base, y.base);
  });
}

namespace {

bool equal(const PartOfTile::Interval& a, const PartOfTile::Interval& b) {
  return a.begin == b.begin && a.end == b.end;
}

// Limits of a slice are wider or the same.
PartOfTile::Interval interval_of(const View& view, std::size_t d) {
  const ViewDim& dim = view.dims[d];
  if (!is_constant(dim.offset)) return {0, constant_value(view.shape[d])};
  const std::int64_t begin = constant_value(dim.offset);
  return {begin, begin + (dim.axis < 0 ? 1 : view.extent(dim.axis))};
}

}  // namespace

bool PartOfTile::operator==(const PartOfTile& other) const {
  return tile == other.tile && std::equal(along.begin(), along.end(), other.along.begin(), other.along.end(),
                                          [](const Interval& a, const Interval& b) { return equal(a, b); });
}

PartOfTile part_of_tile(const View& view) {
  if (!is_own_shape(view)) return {};
  PartOfTile result{view.buffer.get()};
  for (std::size_t d = 0; d < view.dims.size(); ++d) result.along.push_back(interval_of(view, d));
  return result;
}

bool are_apart(const PartOfTile& a, const PartOfTile& b) {
  if (!a.tile || a.tile != b.tile) return false;
  for (std::size_t d = 0; d < a.along.size(); ++d)
    if (a.along[d].end <= b.along[d].begin || b.along[d].end <= a.along[d].begin) return true;
  return false;
}

}  // namespace tegula::passes
