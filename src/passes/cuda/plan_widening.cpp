#include "passes/cuda/plan_widening.hpp"

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The dimension of a tensor at the coordinate as one of a view whose axes are the indices of a loop; nothing
// where the coordinate is no sum with one of them.
std::optional<ViewDim> along(const Expr& coordinate, const ViewDim& dim, const For& loop) {
  ViewDim result{coordinate, dim.low, dim.high, -1};
  for (std::size_t d = 0; d < loop.index.size(); ++d) {
    if (!uses(coordinate, loop.index[d])) continue;
    const auto rest = difference(affine(coordinate), affine(variable(loop.index[d])));
    result.offset = rest ? to_expr(*rest, coordinate->held(), coordinate->at) : nullptr;
    if (!result.offset || result.axis >= 0) return std::nullopt;
    result.axis = static_cast<int>(d);
  }
  const auto depends = [&](const Expr& e) {
    return e && std::any_of(loop.index.begin(), loop.index.end(),
                            [&](const VariablePtr& index) { return uses(e, index); });
  };
  if (depends(result.offset) || depends(result.low) || depends(result.high)) return std::nullopt;
  return result;
}

// Whether the value is what is loaded, rounded or not.
bool is_element(const Expr& value, const Load& load) {
  return is_variable(value, load.variable) ||
         (value->op == Op::cast && is_variable(value->args[0], load.variable));
}

// The loop as a copy, if it loads each element of a tile from a tensor and stores it.
std::optional<Copy> as_copy(const Stmt& stmt) {
  if (const auto* copy = as<Copy>(stmt)) return *copy;
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2) return std::nullopt;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.is_tile() || !is_whole(store->to.view) ||
      store->to.index.size() != loop->index.size())
    return std::nullopt;
  if (!is_element(store->value, *load)) return std::nullopt;
  for (std::size_t d = 0; d < loop->index.size(); ++d) {
    const bool all = is_variable(store->to.index[d], loop->index[d]) && is_constant(loop->begin[d], 0) &&
                     is_constant(loop->end[d], store->to.view.extent(static_cast<int>(d)));
    if (!all) return std::nullopt;
  }
  Copy result{load->from.view, store->to.view, nullptr};
  result.from.extents = store->to.view.extents;
  const std::vector<Expr> at = coordinates(load->from);
  for (std::size_t d = 0; d < at.size(); ++d) {
    const auto dim = along(at[d], load->from.view.dims[d], *loop);
    if (!dim) return std::nullopt;
    result.from.dims[d] = *dim;
  }
  return result;
}

bool widens(const Buffer& tensor, const Buffer& tile) {
  return tensor.type.is_floating() && tensor.type.bits() == 8 && tile.type.is_floating() &&
         tile.type.bits() == 16 && tile.rank() == 2;
}

BufferPtr as_stored_tile(const Buffer& tile, DType type) {
  return new_tile((tile.name + "_as_stored").c_str(), Space::shared, type, tile.shape, tile.at);
}

// Limits along rows are left to who widens them.
View without_limits_of_rows(View from) {
  for (ViewDim& dim : from.dims)
    if (dim.axis == 0) dim.low = dim.high = nullptr;
  return from;
}

// The number of the tile's row at the coordinate.
Expr row_at(const Expr& coordinate, const ViewDim& dim, std::int64_t first) {
  if (!coordinate) return nullptr;
  const Loc& at = coordinate->at;
  return make(Op::add, i32, {make(Op::sub, i32, {coordinate, dim.offset}, at), int32(first, at)}, at);
}

}  // namespace

std::optional<Widening> plan_widening(const Stmt& stmt, const BufferPtr& bytes) {
  const auto copy = as_copy(stmt);
  if (!copy || copy->from.is_tile() || copy->to.rank() != 2) return std::nullopt;
  const Buffer &tensor = *copy->from.buffer, &tile = *copy->to.buffer;
  const auto rows = rows_of(copy->to);
  if (!rows || !widens(tensor, tile) || (bytes && bytes->type != tensor.type)) return std::nullopt;
  const BufferPtr own = bytes ? bytes : as_stored_tile(tile, tensor.type);
  Widening result{
      {without_limits_of_rows(copy->from), copy->to, copy->fill, false}, {}, {rows->first, rows->count}};
  result.load.to.buffer = own;
  const auto plan = plan_copy(result.load, true);
  if (!plan || plan->is_clipped || !swizzled_order(*own).is_swizzled() || !swizzled_order(tile).is_swizzled())
    return std::nullopt;
  result.plan = *plan;
  Copy limited = *copy;
  limited.to.buffer = own;
  const auto whole = plan_copy(limited, true);
  if (!whole || !whole->is_clipped) return whole ? std::optional(result) : std::nullopt;
  for (const ViewDim& dim : copy->from.dims) {
    if (dim.axis != 0) continue;
    for (const Expr& e : {dim.offset, dim.low, dim.high})
      if (e && e->held() != i32) return std::nullopt;
    result.rows.low = row_at(dim.low, dim, rows->first);
    result.rows.high = row_at(dim.high, dim, rows->first);
  }
  return result;
}

std::optional<Stmt> rows_as_stored(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() < 2) return std::nullopt;
  const auto* load = as<Load>(loop->body[loop->body.size() - 2]);
  const auto* store = as<Store>(loop->body.back());
  if (!load || !store || load->from.view.is_tile() || !is_whole(store->to.view)) return std::nullopt;
  const Buffer &tensor = *load->from.view.buffer, &tile = *store->to.view.buffer;
  if (!widens(tensor, tile) || !is_element(store->value, *load)) return std::nullopt;
  const BufferPtr bytes = as_stored_tile(tile, tensor.type);
  if (!swizzled_order(*bytes).is_swizzled() || !swizzled_order(tile).is_swizzled()) return std::nullopt;
  Store stored = *store;
  stored.to.view.buffer = bytes, stored.value = variable(load->variable, stmt->at);
  For rows = *loop;
  rows.body.back() = statement(std::move(stored), stmt->at);
  const Stmt result = statement(std::move(rows), stmt->at);
  return plan_rows(result) ? std::optional(result) : std::nullopt;
}

std::int64_t columns_to_widen(const Stmt& stmt, const Buffer& tile) {
  const std::int64_t all = tile.extent(1);
  const auto in_units = [&](std::int64_t columns) {
    return std::min(all, (std::max<std::int64_t>(columns, 1) + widened_elements - 1) / widened_elements *
                             widened_elements);
  };
  const auto left = [&](const Buffer& tensor, std::size_t d, const Expr& offset) {
    const Expr& extent = tensor.shape[d];
    return is_constant(extent) && offset && is_constant(offset)
               ? in_units(constant_value(extent) - constant_value(offset))
               : all;
  };
  if (const auto copy = as_copy(stmt)) {
    for (std::size_t d = 0; d < copy->from.dims.size(); ++d)
      if (copy->from.dims[d].axis == 1) return left(*copy->from.buffer, d, copy->from.dims[d].offset);
    return all;
  }
  const auto* loop = as<For>(stmt);
  const auto* load = loop && loop->body.size() > 1 ? as<Load>(loop->body[loop->body.size() - 2]) : nullptr;
  if (!load) return all;
  const std::vector<Expr> at = coordinates(load->from);
  for (std::size_t d = 0; d < at.size(); ++d)
    if (uses(at[d], loop->index.back())) {
      const auto own = difference(affine(at[d]), affine(variable(loop->index.back())));
      return own ? left(*load->from.view.buffer, d, to_expr(*own, at[d]->held(), at[d]->at)) : all;
    }
  return all;
}

Stmt widening(const BufferPtr& bytes, const BufferPtr& tile, const std::vector<WidenedRows>& rows,
              const Loc& at) {
  const auto joined = [&](Op op, const Expr& a, const Expr& b) {
    return a && b ? make(op, boolean, {a, b}, at) : a ? a : b;
  };
  const auto element = [&](const std::vector<Expr>& index, const Access& to) {
    Expr exists;
    for (const WidenedRows& own : rows) {
      if (!own.low && !own.high) continue;
      const auto compared = [&](Op op, const Expr& e) {
        return e ? make(op, boolean, {index[0], e}, at) : nullptr;
      };
      Expr inside = joined(Op::logical_and, compared(Op::ge, own.low), compared(Op::lt, own.high));
      const Expr outside = joined(Op::logical_or, compared(Op::lt, int32(own.first, at)),
                                  compared(Op::ge, int32(own.first + own.count, at)));
      exists = joined(Op::logical_and, exists, joined(Op::logical_or, outside, inside));
    }
    const VariablePtr x = new_variable("x", compute_type(bytes->type), VariableKind::let, at);
    Expr value = variable(x, at);
    if (exists) value = make(Op::select, x->type, {exists, value, ir::constant(x->type, 0)}, at);
    return Body{statement(Load{x, {whole(bytes), index}}, at),
                statement(Store{to, as_stored(value, tile->type)}, at)};
  };
  return over_view(whole(tile), at, element)[0];
}

}  // namespace tegula::passes
