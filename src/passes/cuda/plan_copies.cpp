#include "passes/cuda/plan_copies.hpp"

#include "layout/tile_order.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t most_in_box = 256;
constexpr int most_dims = 5;

bool is_zero(const Expr& e) {
  return !e || (is_constant(e) && (e->held().is_floating() ? e->real == 0 : e->integer == 0));
}

// All of the tile in its order, however it is reshaped, its rows kept whole.
bool covers(const View& to) {
  const Buffer& tile = *to.buffer;
  if (tile.space != Space::shared || to.rank() < 1 || to.shape.size() != to.dims.size()) return false;
  if (static_cast<int>(to.dims.size()) != to.rank()) return false;
  for (int d = 0; d < to.rank(); ++d) {
    const ViewDim& dim = to.dims[static_cast<std::size_t>(d)];
    if (dim.axis != d || !is_constant(dim.offset, 0)) return false;
    if (constant_value(to.shape[static_cast<std::size_t>(d)]) != to.extent(d)) return false;
  }
  return to.extent(to.rank() - 1) == tile.extent(tile.rank() - 1);
}

bool is_own_shape(const View& view) {
  if (view.shape.size() != view.buffer->shape.size()) return false;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    if (!equal(view.shape[d], view.buffer->shape[d])) return false;
  }
  return true;
}

}  // namespace

std::optional<TensorCopy> plan_copy(const Copy& copy, bool swizzled) {
  const View &from = copy.from, &to = copy.to;
  if (from.is_tile() || !covers(to) || !is_own_shape(from) || !is_zero(copy.fill)) return std::nullopt;
  if (from.buffer->type != to.buffer->type || from.buffer->rank() > most_dims) return std::nullopt;
  const Buffer& tile = *to.buffer;
  const int last = tile.rank() - 1, bytes = tile.type.bytes();
  TensorCopy plan;
  plan.columns = static_cast<int>(tile.extent(last));
  if (swizzled) {
    const auto order = layout::swizzled_order(tile.extent(0), tile.extent(1));
    if (order.is_swizzled()) plan = {{}, order.columns, true, false};
  }
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
  plan.box.pop_back();
  for (const int extent : plan.box) {
    if (extent > most_in_box) return std::nullopt;
  }
  if (plan.columns > most_in_box || plan.columns * bytes % 16 != 0) return std::nullopt;
  return plan;
}

}  // namespace tegula::passes
