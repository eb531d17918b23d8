#include "passes/cuda/plan_copies.hpp"

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/zero.hpp"
#include "layout/tile_order.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int box_alignment = 16;  // bytes: a box that begins elsewhere in its innermost dimension is illegal

}  // namespace

bool is_own_shape(const View& view) {
  if (view.shape.size() != view.buffer->shape.size()) return false;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    if (!equal(view.shape[d], view.buffer->shape[d])) return false;
  }
  return true;
}

int aligned_elements(const View& tensor) { return std::max(1, box_alignment / tensor.buffer->type.bytes()); }

bool begins_aligned(const View& tensor) {
  const std::int64_t unit = aligned_elements(tensor);
  const Affine first = affine(tensor.dims.back().offset);
  return first.constant % unit == 0 &&
         std::all_of(first.terms.begin(), first.terms.end(),
                     [&](const Affine::Term& term) { return term.factor % unit == 0; });
}

std::optional<TileRows> rows_of(const View& view) {
  const Buffer& tile = *view.buffer;
  if (tile.space != Space::shared || view.rank() < 1 || view.shape.size() != view.dims.size())
    return std::nullopt;
  if (static_cast<int>(view.dims.size()) != view.rank()) return std::nullopt;
  for (int d = 0; d < view.rank(); ++d) {
    const ViewDim& dim = view.dims[static_cast<std::size_t>(d)];
    if (dim.axis != d || !is_constant(dim.offset)) return std::nullopt;
    const bool all = is_constant(dim.offset, 0) &&
                     constant_value(view.shape[static_cast<std::size_t>(d)]) == view.extent(d);
    if (!all && d > 0) return std::nullopt;
  }
  const std::int64_t columns = tile.extent(tile.rank() - 1), first = constant_value(view.dims[0].offset);
  if (view.rank() == 1 && (first != 0 || view.extent(0) != tile.elements())) return std::nullopt;
  if (view.rank() > 1 && view.extent(view.rank() - 1) != columns) return std::nullopt;
  std::int64_t inner = 1, rows = view.rank() > 1 ? view.extent(0) : 1;
  for (int d = 1; d + 1 < view.rank(); ++d) inner *= view.extent(d);
  if (first < 0 || (first + rows) * inner * columns > tile.elements()) return std::nullopt;
  return TileRows{first * inner, rows * inner};
}

std::optional<TensorCopy> plan_copy(const Copy& copy, bool swizzled) {
  const View &from = copy.from, &to = copy.to;
  const auto rows = rows_of(to);
  if (from.is_tile() || !rows || !is_own_shape(from) || !is_zero(copy.fill)) return std::nullopt;
  if (from.buffer->type != to.buffer->type || from.buffer->rank() > most_dims) return std::nullopt;
  const Buffer& tile = *to.buffer;
  const int last = tile.rank() - 1, bytes = tile.type.bytes();
  TensorCopy plan;
  plan.columns = static_cast<int>(tile.extent(last));
  if (swizzled) {
    const auto order = layout::swizzled_order(tile.extent(0), tile.extent(1), bytes);
    if (order.is_swizzled()) plan.columns = order.columns, plan.is_swizzled = true;
  }
  // A transfer begins at 128 bytes. The pattern of a swizzle follows the address, so it may begin at any row.
  plan.first_row = static_cast<int>(rows->first);
  if (rows->first * plan.columns * bytes % 128 != 0) return std::nullopt;
  int axis = 0;  // the axes of the tile follow each other in the tensor
  for (const ViewDim& dim : from.dims) {
    std::int64_t extent = 1;
    if (dim.axis >= 0) {
      if (dim.axis != axis++) return std::nullopt;
      extent = to.extent(dim.axis);
      const Expr& bound = from.shape[static_cast<std::size_t>(&dim - from.dims.data())];
      plan.is_clipped |= (dim.low && !is_constant(dim.low, 0)) || (dim.high && !equal(dim.high, bound));
    }
    plan.box.push_back(static_cast<int>(extent));
  }
  if (axis != to.rank() || from.dims.back().axis != to.rank() - 1) return std::nullopt;
  plan.is_clipped |= !begins_aligned(from);
  plan.box.pop_back();
  for (const int extent : plan.box) {
    if (extent > most_in_box) return std::nullopt;
  }
  if (plan.columns > most_in_box || plan.columns * bytes % 16 != 0) return std::nullopt;
  return plan;
}

}  // namespace tegula::passes
