#include "passes/cuda/plan_stores.hpp"

#include "ir/visit.hpp"
#include "passes/cuda/dealt_steps.hpp"

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

bool fits_plain(const View& from, const View& to, const layout::Division& parts, const TensorStore& plan) {
  if (!is_plain(from) || from.rank() > 3 || from.rank() < 2 || store_rows % plan.pack != 0) return false;
  const DType type = to.buffer->type;
  const std::int64_t columns = from.buffer->extent(1);
  if (type != f32 && type != f16 && type != bf16) return false;
  return columns % (plan.columns * parts.along_n) == 0 && from.extent(from.rank() - 1) == columns;
}

bool is_transposed_matrix(const View& from) { return is_matrix(from) && is_transposed(from); }

int box_rows(const View& from) {
  return is_transposed_matrix(from) ? static_cast<int>(from.extent(0)) : store_rows;
}

// A box is as high as the fragment is wide, and the 64 rows of a warp group are the columns of both its
// boxes.
bool fits_transposed(const Buffer& tile, const View& to, const layout::Division& parts) {
  return to.buffer->type == f32 && parts.along_n == 1 && tile.extent(1) <= most_in_box &&
         tile.extent(0) == store_rows * parts.along_m;
}

// How many columns of a row are shown, or 0 where they do not begin and end at multiples of 16 bytes.
std::int64_t shown_columns(const View& to) {
  const ViewDim& last = to.dims.back();
  const Expr& extent = to.shape.back();
  const auto is_whole = [&](const Expr& e) {
    return is_constant(e) && constant_value(e) * to.buffer->type.bytes() % 16 == 0;
  };
  if (last.axis != to.rank() - 1 || !is_whole(extent) || !is_whole(last.offset)) return 0;
  const std::int64_t first = constant_value(last.offset);
  if (last.low && (!is_constant(last.low) || constant_value(last.low) > first)) return 0;
  if (last.high && !is_whole(last.high)) return 0;
  return (last.high ? constant_value(last.high) : constant_value(extent)) - first;
}

// How many groups have columns of a row where that is the column; 0 if it is something else.
int groups_of_row(const Expr& at, const VariablePtr& column, std::int64_t columns, const VariablePtr& group) {
  if (is_variable(at, column)) return 1;
  if (!group || at->op != Op::add || !is_variable(at->args[0], column)) return 0;
  const Expr& first = at->args[1];
  const bool of_group =
      first->op == Op::mul && is_variable(first->args[0], group) && is_constant(first->args[1], columns);
  return of_group ? dealt_groups : 0;
}

// Whole pieces of a row are shown, and the loop's columns are those of a group, or all.
bool is_row(const Access& to, const VariablePtr& column, std::int64_t columns, const VariablePtr& group) {
  const Buffer& buffer = *to.view.buffer;
  if (buffer.type.bits() != 16 || !buffer.type.is_floating()) return false;
  if (to.view.shape.size() != buffer.shape.size() || to.view.dims.empty()) return false;
  const int groups = groups_of_row(to.index.back(), column, columns, group);
  if (groups == 0 || columns * groups > shown_columns(to.view)) return false;
  for (std::size_t d = 0; d + 1 < to.index.size(); ++d) {
    if (uses(to.index[d], column)) return false;
  }
  for (const ViewDim& dim : to.view.dims) {
    if (uses(dim.offset, column)) return false;
  }
  return true;
}

}  // namespace

std::int64_t staging_bytes(const View& from) { return store_buffers * box_rows(from) * row_bytes; }

std::optional<TensorStore> plan_store(const View& from, const View& to, const layout::Division& parts) {
  const Buffer& tile = *from.buffer;
  if (tile.space != Space::fragment || tile.rank() != 2 || tile.type != f32 || to.is_tile())
    return std::nullopt;
  if (!is_own_shape(to) || to.shape.size() > most_dims) return std::nullopt;
  TensorStore plan;
  plan.columns = row_bytes / to.buffer->type.bytes();
  plan.transposed = is_transposed_matrix(from);
  plan.rows = box_rows(from);
  if (from.rank() == 3) plan.pack = static_cast<int>(from.extent(1));
  const bool fits = plan.transposed ? fits_transposed(tile, to, parts) : fits_plain(from, to, parts, plan);
  if (!fits) return std::nullopt;
  int axis = 0;
  for (const ViewDim& dim : to.dims) {
    if (dim.axis >= 0 && dim.axis != axis++) return std::nullopt;
    plan.box.push_back(dim.axis < 0 ? 1 : dim.axis == 0 ? plan.rows / plan.pack : plan.pack);
  }
  if (axis != from.rank() || to.dims.back().axis != from.rank() - 1) return std::nullopt;
  plan.box.pop_back();
  return plan;
}

const Access* plan_row_store(const Stmt& s, const Layouts& layouts, int threads, const CudaTarget& target,
                             const VariablePtr& group) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() != 2 || loop->body.size() != 2)
    return nullptr;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.buffer->space != Space::fragment || store->to.view.is_tile())
    return nullptr;
  const Buffer& from = *load->from.view.buffer;
  if (from.type != f32 || loop_axes(*loop, load->from) != std::vector<int>{0, 1}) return nullptr;
  const bool rounds = store->value->op == Op::cast && store->value->type == store->to.view.buffer->type;
  const Expr& value = rounds ? store->value->args[0] : store->value;
  if (!is_variable(value, load->variable) || !is_row(store->to, loop->index[1], from.extent(1), group))
    return nullptr;
  if (store->to.view.buffer->role != Role::workspace && !target.copy_engine) return nullptr;
  const auto layout = layouts.fragments.find(&from);
  const std::int64_t m = from.extent(0), n = from.extent(1), groups = threads / 128;
  if (!target.has_wgmma() || threads % 128 != 0 || layout == layouts.fragments.end()) return nullptr;
  const layout::Division parts =
      m == store_rows * groups ? layout::Division{groups, 1} : layout::Division{1, groups};
  if (m != store_rows * parts.along_m || n % (quad_columns * parts.along_n) != 0) return nullptr;
  return layout->second == layout::wgmma_accumulator(m, n, parts) ? &store->to : nullptr;
}

Expr can_transfer(const View& to, const View& tile, const Loc& at, bool limits_matter) {
  Expr result = truth(true, at);
  const auto require = [&](const Expr& condition) {
    result = make(Op::logical_and, boolean, {result, condition}, at);
  };
  for (std::size_t d = 0; limits_matter && d < to.dims.size(); ++d) {
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
  const Expr& first = to.dims.back().offset;
  if (!begins_aligned(to))
    require(
        make(Op::eq, boolean,
             {make(Op::mod, first->held(), {first, constant(first->held(), aligned_elements(to), at)}, at),
              constant(first->held(), 0, at)},
             at));
  return result;
}

}  // namespace tegula::passes
