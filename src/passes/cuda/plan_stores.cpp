#include "passes/cuda/plan_stores.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_plain(const View& from) {
  if (from.shape.size() != from.dims.size() || static_cast<int>(from.dims.size()) != from.rank())
    return false;
  for (int d = 0; d < from.rank(); ++d) {
    const ViewDim& dim = from.dims[static_cast<std::size_t>(d)];
    if (dim.axis != d || !is_constant(dim.offset, 0)) return false;
    if (constant_value(from.shape[static_cast<std::size_t>(d)]) != from.extent(d)) return false;
  }
  return true;
}

}  // namespace

std::optional<TensorStore> plan_store(const View& from, const View& to, const layout::Division& parts) {
  const Buffer& tile = *from.buffer;
  if (tile.space != Space::fragment || tile.rank() != 2 || tile.type != f32 || to.is_tile())
    return std::nullopt;
  if (!is_plain(from) || to.shape.size() != to.buffer->shape.size() || to.shape.size() > 5)
    return std::nullopt;
  for (std::size_t d = 0; d < to.shape.size(); ++d) {
    if (!equal(to.shape[d], to.buffer->shape[d])) return std::nullopt;
  }
  TensorStore plan;
  plan.columns = 128 / to.buffer->type.bytes();
  if (from.rank() == 3) plan.pack = static_cast<int>(from.extent(1));
  if (from.rank() > 3 || from.rank() < 2 || store_rows % plan.pack != 0) return std::nullopt;
  const DType type = to.buffer->type;
  if ((type != f32 && type != f16 && type != bf16) || tile.extent(1) % (plan.columns * parts.along_n) != 0)
    return std::nullopt;
  if (from.extent(from.rank() - 1) != tile.extent(1)) return std::nullopt;
  int axis = 0;
  for (const ViewDim& dim : to.dims) {
    if (dim.axis >= 0 && dim.axis != axis++) return std::nullopt;
    plan.box.push_back(dim.axis < 0 ? 1 : dim.axis == 0 ? store_rows / plan.pack : plan.pack);
  }
  if (axis != from.rank() || to.dims.back().axis != from.rank() - 1) return std::nullopt;
  plan.box.pop_back();
  return plan;
}

Expr is_uncut(const View& to, const View& tile, const Loc& at) {
  Expr result = truth(true, at);
  const auto require = [&](const Expr& condition) {
    result = make(Op::logical_and, boolean, {result, condition}, at);
  };
  for (std::size_t d = 0; d < to.dims.size(); ++d) {
    const ViewDim& dim = to.dims[d];
    if (dim.axis < 0) continue;
    const DType type = dim.offset->held();
    if (dim.low && !is_constant(dim.low, 0)) require(make(Op::ge, boolean, {dim.offset, dim.low}, at));
    if (!dim.high || equal(dim.high, to.shape[d])) continue;
    const Expr end = make(Op::add, type, {dim.offset, constant(type, tile.extent(dim.axis))}, at);
    require(
        make(Op::logical_or, boolean,
             {make(Op::le, boolean, {end, dim.high}, at), make(Op::ge, boolean, {dim.high, to.shape[d]}, at)},
             at));
  }
  return result;
}

}  // namespace tegula::passes
