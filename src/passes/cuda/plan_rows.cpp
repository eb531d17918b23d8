#include "passes/cuda/plan_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/bounds.hpp"
#include "ir/effects.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int vector_element_bytes = 4;  // the least that is copied without waiting

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

// Whether the difference is known not to be negative.
bool is_at_most(const Expr& a, const Expr& b, std::int64_t more = 0) {
  const auto rest = difference(affine(b), affine(a));
  return rest && bounds(*rest, Facts()).low >= more;
}

bool is_multiple(const Expr& e, int of) {
  const Affine sum = affine(e);
  return sum.constant % of == 0 && std::all_of(sum.terms.begin(), sum.terms.end(),
                                               [&](const Affine::Term& t) { return t.factor % of == 0; });
}

// The dimension along which the column goes. Rows without holes run along the tensor's own last dimension,
// and rows of a reshaped tensor begin at pieces only where its last extent says so.
std::optional<std::size_t> row_dim(const Access& from, const For& loop, int elements) {
  const VariablePtr& column = loop.index.back();
  const std::size_t last = from.view.dims.size() - 1;
  for (std::size_t d = 0; d <= last; ++d) {
    const ViewDim& dim = from.view.dims[d];
    if (uses(dim.offset, column)) return std::nullopt;
    const bool along = dim.axis >= 0 && uses(from.index[static_cast<std::size_t>(dim.axis)], column);
    if (along != (d == last)) return std::nullopt;
  }
  const ViewDim& dim = from.view.dims[last];
  const Expr& extent = from.view.shape[last];
  const bool reshaped = !is_own_shape(from.view);
  if (reshaped && (!is_constant(extent) || constant_value(extent) % elements != 0)) return std::nullopt;
  if (!is_variable(from.index[static_cast<std::size_t>(dim.axis)], column)) return std::nullopt;
  for (const VariablePtr& index : loop.index)
    if (uses(dim.offset, index)) return std::nullopt;
  const bool begins = !dim.low || is_constant(dim.low, 0) || is_at_most(dim.low, dim.offset);
  return begins && is_multiple(dim.offset, elements) ? std::optional(last) : std::nullopt;
}

bool row_may_be_cut(const ViewDim& dim, const Expr& extent, std::int64_t columns) {
  const bool begins = bounds(dim.offset, Facts()).low >= 0;
  const bool ends =
      is_at_most(dim.offset, extent, columns) && (!dim.high || is_at_most(dim.offset, dim.high, columns));
  return !begins || !ends;
}

bool ends_within_piece(const ViewDim& dim, const Expr& extent, int elements) {
  return !is_multiple(extent, elements) || (dim.high && !is_multiple(dim.high, elements));
}

// Rows of a tensor that lie one behind the other begin where the last one's bytes say.
int unit_of_rows(const View& from) {
  const Expr& extent = from.shape.back();
  if (!is_own_shape(from) || !is_constant(extent)) return piece_bytes;
  const std::int64_t bytes = constant_value(extent) * from.buffer->type.bytes();
  int unit = piece_bytes;
  while (bytes % unit != 0) unit /= 2;
  return unit;
}

// Pure, and the same for all columns.
bool is_lookup(const Stmt& s, const VariablePtr& column, const BufferPtr& tile) {
  if (!as<Let>(s) && !as<Load>(s)) return false;
  const Effects e = effects(s);
  const bool by_column = std::find(e.used.begin(), e.used.end(), column) != e.used.end();
  return !by_column && !e.reads(tile);
}

// The reason why an element that is converted is not copied. Computing with an element is not a copy.
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
              "a row of {} elements is not known to begin at a multiple of {} in the last dimension of `{}`",
              columns, elements, load.from.view.buffer->name),
          fmt::format("begin at multiples of {} elements of a row, and say so: `range(i * {}, …)`", elements,
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
  plan.elements = piece_bytes / tile->type.bytes();
  const VariablePtr& column = loop->index.back();
  if (!goes_over(*loop, plan.store->to))
    return Reason{fmt::format("the loop does not go over whole rows of tile {}, its last index along them",
                              named(*tile)),
                  "fill all columns of the tile, in its own order"};
  const std::int64_t columns = tile->extent(tile->rank() - 1);
  if (columns % plan.elements != 0)
    return Reason{fmt::format("rows of tile {} have {} bytes, which is not a multiple of {}", named(*tile),
                              columns * tile->type.bytes(), piece_bytes),
                  fmt::format("use tiles with a multiple of {} columns", plan.elements)};
  const auto dim = row_dim(plan.load->from, *loop, plan.elements);
  if (!dim) return reason_of_row(*plan.load, columns, plan.elements);
  for (std::size_t i = 0; i < plan.lookups; ++i) {
    if (!is_lookup(loop->body[i], column, tile))
      return Reason{"the row number differs from column to column, or is not a plain value",
                    "compute the row from the row index alone"};
  }
  plan.loop = stmt;
  plan.dim = *dim;
  plan.unit = unit_of_rows(from);
  plan.may_be_cut = row_may_be_cut(from.dims[*dim], from.shape[*dim], columns);
  plan.cuts_pieces = plan.may_be_cut && ends_within_piece(from.dims[*dim], from.shape[*dim], plan.elements);
  return plan;
}

Planned<RowCopy> plan_vector(const Stmt& stmt) {
  const auto* copy = as<Copy>(stmt);
  if (!copy || copy->from.is_tile() || copy->to.buffer->space != Space::shared) return Reason{};
  const DType type = copy->to.buffer->type;
  const bool plain =
      copy->from.buffer->type == type && type.bytes() == vector_element_bytes && is_zero(copy->fill);
  if (!plain || copy->to.rank() != 1 || !is_whole(copy->to) || begins_aligned(copy->from)) return Reason{};
  const Body loop = over_view(copy->to, stmt->at, [&](const std::vector<Expr>& index, const Access& to) {
    const VariablePtr x = new_variable("x", type, VariableKind::let, stmt->at);
    return Body{statement(Load{x, {copy->from, index}}, stmt->at),
                statement(Store{to, variable(x, stmt->at)}, stmt->at)};
  });
  const auto& elements = *as<For>(loop.back());
  return RowCopy{loop.back(), as<Load>(elements.body[0]), as<Store>(elements.body[1]), 0, 0, 1, false};
}

std::optional<RowCopy> plan_elements(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() != 1 || loop->body.size() < 2)
    return std::nullopt;
  const std::size_t lookups = loop->body.size() - 2;
  const auto* load = as<Load>(loop->body[lookups]);
  const auto* store = as<Store>(loop->body.back());
  if (!load || !store || !is_variable(store->value, load->variable)) return std::nullopt;
  const View &from = load->from.view, &to = store->to.view;
  const DType type = to.buffer->type;
  const bool plain = !from.is_tile() && from.buffer->type == type && type.bytes() == vector_element_bytes;
  const bool all = to.buffer->space == Space::shared && to.rank() == 1 && is_whole(to) &&
                   is_variable(store->to.index[0], loop->index[0]) && is_constant(loop->begin[0], 0) &&
                   is_constant(loop->end[0], to.extent(0));
  const bool finds = std::all_of(loop->body.begin(), loop->body.end() - 2, [](const Stmt& s) {
    const auto* lookup = as<Load>(s);
    return as<Let>(s) || (lookup && !lookup->from.view.is_tile());
  });
  if (!plain || !all || !finds) return std::nullopt;
  return RowCopy{stmt, load, store, lookups, 0, 1, false};
}

Planned<RowCopy> plan_pieces(const Stmt& stmt) {
  auto vector = plan_vector(stmt);
  return vector ? vector : plan_rows(stmt);
}

}  // namespace tegula::passes
