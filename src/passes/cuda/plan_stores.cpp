#include "passes/cuda/plan_stores.hpp"

#include "ir/visit.hpp"

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
  if (!is_plain(from) || from.rank() < 2 || store_rows % plan.pack != 0) return false;
  const DType type = to.buffer->type;
  const std::int64_t columns = from.buffer->extent(1);
  if (type != f32 && type != f16 && type != bf16) return false;
  return columns % (plan.columns * parts.along_n) == 0 && from.extent(from.rank() - 1) == columns;
}

constexpr int swizzled_together = 8;

bool is_transposed_matrix(const View& from) { return is_matrix(from) && is_transposed(from); }

// Of a sum that is stored transposed, boxes of f32 have all rows and half of a warp group's columns. Those of
// 16 bits have all its columns and half of the rows, in eights. Of very many rows of a sum whose product has
// exchanged operands they have a few: what buffers take, slots of rings lack.
constexpr int most_rows_of_two = 128, rows_of_many = 32;
int box_rows(const View& from, DType type, bool is_transposed) {
  if (!is_transposed) return store_rows;
  const auto rows = static_cast<int>(from.extent(0));
  if (type == f32) return rows;
  constexpr int together = store_buffers * swizzled_together;
  const bool has_many = rows > most_rows_of_two && !is_transposed_matrix(from);
  return has_many ? rows_of_many : (rows + together - 1) / together * swizzled_together;
}
int boxes_across(const View& from, DType type) {
  const int rows = box_rows(from, type, true);
  return type == f32 ? store_buffers : (static_cast<int>(from.extent(0)) + rows - 1) / rows;
}

// 64 rows that a warp group holds together are the columns of two boxes, whose swizzled rows come in eights.
// Threads store sixteen rows as fast by themselves, and the rest of a group that is alone a little faster.
bool fits_transposed(const View& from, const View& to, const HeldSum& sum, int rows) {
  constexpr int least_rows = 32;
  const DType type = to.buffer->type;
  const std::int64_t apart = store_rows * sum.parts.along_m;
  const bool is_type = type == f32 || type == f16 || type == bf16;
  const bool has_rows =
      type == f32 || (from.extent(0) % swizzled_together == 0 && from.extent(0) >= least_rows);
  return is_type && has_rows && sum.parts.along_n == 1 && rows <= most_in_box &&
         from.extent(1) % apart == 0 && (sum.parts.along_m > 1 || from.extent(1) == apart);
}

// How many rows of the fragment have one coordinate of the first axis.
int rows_of_place(const View& from) {
  int result = 1;
  for (int d = 1; d + 1 < from.rank(); ++d) result *= static_cast<int>(from.extent(d));
  return result;
}

TensorStore divided_among_warps(TensorStore plan) {
  plan.by_warps = true;
  (plan.transposed ? plan.columns : plan.rows) = store_warp_rows;
  return plan;
}

const View& stored_fragment(const Stmt& s) {
  const auto* sum = as<Accumulate>(s);
  return sum ? sum->tile : as<Copy>(s)->from;
}
DType stored_type(const Stmt& s) {
  const auto* sum = as<Accumulate>(s);
  return (sum ? sum->to : as<Copy>(s)->to).buffer->type;
}

}  // namespace

bool is_stored_transposed(const Stmt& s) {
  const auto* copy = as<Copy>(s);
  return (copy && copy->turned_sum) || is_transposed_matrix(stored_fragment(s));
}

int boxes_across(const Stmt& s) { return boxes_across(stored_fragment(s), stored_type(s)); }

bool are_staged_apart(const Stmt& s) { return !is_stored_transposed(s) || boxes_across(s) > store_buffers; }

std::int64_t staging_bytes(const Stmt& s) {
  return store_buffers * box_rows(stored_fragment(s), stored_type(s), is_stored_transposed(s)) * row_bytes;
}

std::optional<TensorStore> plan_store(const View& from, const View& to, const HeldSum& sum, bool by_warps) {
  const Buffer& tile = *from.buffer;
  if (tile.space != Space::fragment || tile.rank() != 2 || tile.type != f32 || to.is_tile())
    return std::nullopt;
  if (!is_own_shape(to) || to.shape.size() > most_dims) return std::nullopt;
  TensorStore plan;
  plan.columns = row_bytes / to.buffer->type.bytes();
  if (sum.turned && (from.rank() != 2 || !is_plain(from))) return std::nullopt;
  plan.transposed = sum.turned || is_transposed_matrix(from);
  plan.rows = box_rows(from, to.buffer->type, plan.transposed);
  if (plan.transposed) plan.across = boxes_across(from, to.buffer->type);
  if (plan.transposed && to.buffer->type != f32)
    plan.rows_twice = plan.across * plan.rows - static_cast<int>(from.extent(0));
  plan.pack = rows_of_place(from);
  const bool fits =
      plan.transposed ? fits_transposed(from, to, sum, plan.rows) : fits_plain(from, to, sum.parts, plan);
  if (!fits) return std::nullopt;
  if (by_warps) plan = divided_among_warps(plan);
  int axis = 0;
  for (const ViewDim& dim : to.dims) {
    if (dim.axis >= 0 && dim.axis != axis++) return std::nullopt;
    const bool is_first = dim.axis == 0;
    plan.box.push_back(dim.axis < 0 ? 1
                       : is_first   ? plan.rows / plan.pack
                                    : static_cast<int>(from.extent(dim.axis)));
  }
  if (axis != from.rank() || to.dims.back().axis != from.rank() - 1) return std::nullopt;
  plan.box.pop_back();
  return plan;
}

// Of a transposed sum a warp has sixteen columns: with 16 bits they are the shortest rows that the copy
// engine swizzles; their rows are staged by sixteen.
bool can_be_stored_by_warps(const Copy& copy) {
  const bool is_transposed = copy.turned_sum || is_transposed_matrix(copy.from);
  if (!is_transposed) return store_warp_rows % rows_of_place(copy.from) == 0;
  return copy.to.buffer->type.bits() == 16 && copy.from.extent(0) % (2 * swizzled_together) == 0;
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
