#include "passes/cuda/plan_rows.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"
#include "passes/cuda/plan_copies.hpp"

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

}  // namespace

std::optional<RowCopy> plan_rows(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() < 2) return std::nullopt;
  RowCopy plan;
  plan.lookups = loop->body.size() - 2;
  plan.load = as<Load>(loop->body[plan.lookups]);
  plan.store = as<Store>(loop->body.back());
  if (!plan.load || !plan.store) return std::nullopt;
  const View &from = plan.load->from.view, &to = plan.store->to.view;
  if (from.is_tile() || to.buffer->space != Space::shared || from.buffer->type != to.buffer->type)
    return std::nullopt;
  if (!is_variable(plan.store->value, plan.load->variable) || !has_own_shape(from)) return std::nullopt;
  plan.elements = piece_bytes / to.buffer->type.bytes();
  const VariablePtr& column = loop->index.back();
  const BufferPtr& tile = to.buffer;
  if (!goes_over(*loop, plan.store->to) || tile->extent(tile->rank() - 1) % plan.elements != 0)
    return std::nullopt;
  const auto dim = row_dim(plan.load->from, column, tile->extent(tile->rank() - 1), plan.elements);
  if (!dim) return std::nullopt;
  for (std::size_t i = 0; i < plan.lookups; ++i) {
    if (!is_lookup(loop->body[i], column, tile)) return std::nullopt;
  }
  plan.dim = *dim;
  return plan;
}

}  // namespace tegula::passes
