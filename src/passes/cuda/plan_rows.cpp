#include "passes/cuda/plan_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "ir/effects.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The tile as rows that the loop goes over in order, its columns by the last index.
bool goes_over(const For& loop, const Access& to) {
  const auto rows = rows_of(to.view);
  if (!rows || to.view.rank() != static_cast<int>(loop.index.size())) return false;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < loop.index.size(); ++d) {
    if (!is_variable(to.index[d], loop.index[d])) return false;
    if (!is_constant(loop.end[d], to.view.extent(static_cast<int>(d)))) return false;
    if (d + 1 < loop.index.size()) inner *= constant_value(loop.end[d]);
  }
  return to.view.rank() >= 2 && inner == rows->count;
}

// The dimension along which the column goes, all of the row being there.
std::optional<std::size_t> row_dim(const Access& from, const VariablePtr& column, std::int64_t columns,
                                   int elements) {
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < from.view.dims.size(); ++d) {
    const ViewDim& dim = from.view.dims[d];
    if (uses(dim.offset, column)) return std::nullopt;
    if (dim.axis < 0) continue;
    const Expr& index = from.index[static_cast<std::size_t>(dim.axis)];
    if (!uses(index, column)) continue;
    const Expr& extent = from.view.shape[d];
    if (found || !is_variable(index, column) || !is_constant(dim.offset) || !is_constant(extent))
      return std::nullopt;
    const std::int64_t begin = constant_value(dim.offset), end = constant_value(extent);
    const bool cut = (dim.low && !is_constant(dim.low, 0)) || (dim.high && !is_constant(dim.high, end));
    if (cut || begin < 0 || begin % elements != 0 || begin + columns > end) return std::nullopt;
    found = d;
  }
  // Rows without holes lie along the tensor's own last dimension.
  return found && *found + 1 == from.view.dims.size() ? found : std::nullopt;
}

bool has_own_shape(const View& view) {
  return std::equal(view.shape.begin(), view.shape.end(), view.buffer->shape.begin(),
                    view.buffer->shape.end(), [](const Expr& a, const Expr& b) { return equal(a, b); });
}

// Pure, and the same for all columns.
bool is_lookup(const Stmt& s, const VariablePtr& column, const BufferPtr& tile) {
  if (!as<Let>(s) && !as<Load>(s)) return false;
  const Effects e = effects(s);
  const bool by_column = std::find(e.used.begin(), e.used.end(), column) != e.used.end();
  return !by_column && !e.reads(tile);
}

// Of an element that is converted on its way. What is computed of it is no copy.
Reason reason_of_values(const Load& load, const Store& store) {
  const Expr& value = store.value;
  const bool converts = value->op == Op::cast && is_variable(value->args[0], load.variable);
  if (!converts) return {};
  return {fmt::format("{} of the tensor become {} of tile {}", load.from.view.buffer->type.name(),
                      store.to.view.buffer->type.name(), named(*store.to.view.buffer)),
          "give the tile the tensor's type, or the tensor the tile's"};
}

Reason reason_of_row(const Load& load, std::int64_t columns, int elements) {
  return {fmt::format(
              "a row of {} elements is not known to begin at a multiple of {} in the last dimension of `{}`, "
              "and to end in it",
              columns, elements, load.from.view.buffer->name),
          fmt::format("gather whole rows, or constant columns, of a tensor whose last extent is constant: "
                      "[rows, pieces, {}] instead of [rows, columns]",
                      columns)};
}

}  // namespace

Planned<RowCopy> plan_rows(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() < 2) return Reason{};
  RowCopy plan;
  plan.lookups = loop->body.size() - 2;
  plan.load = as<Load>(loop->body[plan.lookups]);
  plan.store = as<Store>(loop->body.back());
  if (!plan.load || !plan.store) return Reason{};
  const View &from = plan.load->from.view, &to = plan.store->to.view;
  const BufferPtr& tile = to.buffer;
  if (from.is_tile() || tile->space != Space::shared || to.rank() < 2 || tile->rank() < 2) return Reason{};
  if (!is_variable(plan.store->value, plan.load->variable) || from.buffer->type != tile->type)
    return reason_of_values(*plan.load, *plan.store);
  if (!has_own_shape(from))
    return Reason{fmt::format("tensor `{}` is reshaped", from.buffer->name),
                  "declare the tensor with that shape"};
  plan.elements = piece_bytes / tile->type.bytes();
  const VariablePtr& column = loop->index.back();
  if (!goes_over(*loop, plan.store->to))
    return Reason{fmt::format("the loop does not go over whole rows of tile {}, its last index along them",
                              named(*tile)),
                  "fill all columns of the tile, in its own order"};
  const std::int64_t columns = tile->extent(tile->rank() - 1);
  if (columns % plan.elements != 0)
    return Reason{fmt::format("rows of tile {} have {} bytes, no multiple of {}", named(*tile),
                              columns * tile->type.bytes(), piece_bytes),
                  fmt::format("use tiles with a multiple of {} columns", plan.elements)};
  const auto dim = row_dim(plan.load->from, column, columns, plan.elements);
  if (!dim) return reason_of_row(*plan.load, columns, plan.elements);
  for (std::size_t i = 0; i < plan.lookups; ++i) {
    if (!is_lookup(loop->body[i], column, tile))
      return Reason{"what the row is found by differs from column to column, or is no plain value",
                    "compute the row of the index alone"};
  }
  plan.dim = *dim;
  return plan;
}

}  // namespace tegula::passes
