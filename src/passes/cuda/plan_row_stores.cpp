#include "passes/cuda/plan_row_stores.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/dealt_steps.hpp"
#include "passes/cuda/element_loops.hpp"
#include "passes/cuda/fragment_axes.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int threads_of_row = 4, store_piece_bytes = 16;

// How many warp groups have columns of a row, the first of which is at `first`; 0 if those are somewhere else.
int groups_of_row(const Affine& first, std::int64_t columns, const VariablePtr& group) {
  if (first.is_constant()) return 1;
  const bool of_group = group && first.terms.size() == 1 && is_variable(first.terms[0].atom, group) &&
                        first.terms[0].factor == columns;
  return of_group ? dealt_groups : 0;
}

// The columns of a row as the loop writes them: the place of the first, and in which order they follow.
struct Columns {
  Affine first;
  bool in_own_order = false;
};

// Nothing where they are in some other order.
std::optional<Columns> columns_of(const Expr& place, const VariablePtr& column, std::int64_t count,
                                  int quad) {
  if (auto first = difference(affine(place), affine(variable(column, column->at))); first)
    if (std::none_of(first->terms.begin(), first->terms.end(),
                     [&](const Affine::Term& term) { return uses(term.atom, column); }))
      return Columns{*first};
  const auto at = [&](std::int64_t n) {
    return affine(simplify(substitute(place, {{column, constant(column->type, n)}}), Facts()));
  };
  const Affine first = at(0);
  for (std::int64_t n = 1; n < count; ++n) {
    const auto distance = difference(at(n), first);
    if (!distance || !distance->is_constant() || distance->constant != own_place(n, quad))
      return std::nullopt;
  }
  return Columns{first, true};
}

// Whole pieces of a row are written: its columns are the loop's, from a constant one on, or those of `group`.
std::optional<Columns> row_columns(const Access& to, const VariablePtr& column, std::int64_t columns,
                                   const VariablePtr& group) {
  const View& view = to.view;
  if (view.shape.size() != view.buffer->shape.size() || view.dims.empty()) return std::nullopt;
  const std::vector<Expr> at = coordinates(to);
  for (std::size_t d = 0; d + 1 < at.size(); ++d)
    if (uses(at[d], column)) return std::nullopt;
  auto result = columns_of(at.back(), column, columns, quad_columns(view.buffer->type));
  const int groups = result ? groups_of_row(result->first, columns, group) : 0;
  if (groups == 0) return std::nullopt;
  const std::int64_t begin = result->first.constant;
  const auto is_whole = [&](std::int64_t elements) {
    return elements * view.buffer->type.bytes() % store_piece_bytes == 0;
  };
  const ViewDim& last = view.dims.back();
  const auto ends_behind = [&](const Expr& e) {
    return is_constant(e) && is_whole(constant_value(e)) && begin + columns * groups <= constant_value(e);
  };
  const bool begins = !last.low || (is_constant(last.low) && constant_value(last.low) <= begin);
  const bool is_row = begins && begin >= 0 && is_whole(begin) && ends_behind(view.shape.back()) &&
                      (!last.high || ends_behind(last.high));
  return is_row ? result : std::nullopt;
}

// The columns begin where the block says, and rows end somewhere behind; both where pieces do.
bool is_window(const Access& to, const For& loop, const Facts& facts) {
  const View& view = to.view;
  if (!is_own_shape(view) || view.dims.empty()) return false;
  const ViewDim& last = view.dims.back();
  const std::vector<Expr> at = coordinates(to);
  for (std::size_t d = 0; d + 1 < at.size(); ++d)
    if (uses(at[d], loop.index[1])) return false;
  const auto first = difference(affine(at.back()), affine(variable(loop.index[1], loop.index[1]->at)));
  const auto is_of_block = [&](const Affine::Term& term) {
    return !uses(term.atom, loop.index[0]) && !uses(term.atom, loop.index[1]);
  };
  if (last.low || last.high || !first || !std::all_of(first->terms.begin(), first->terms.end(), is_of_block))
    return false;
  const auto ends_pieces = [&](const Affine& a) {
    return divisor(a, facts) * view.buffer->type.bytes() % store_piece_bytes == 0;
  };
  return ends_pieces(*first) && ends_pieces(affine(view.shape.back()));
}

// The f32 sum that goes over rows and columns as the loop does, of which warp groups hold parts.
BufferPtr sum_of(const For& loop, const RowLoop& rows, const Layouts& layouts, int threads) {
  for (const Stmt& s : rows.element) {
    const auto* load = as<Load>(s);
    if (!load || loop_axes(loop, load->from) != std::vector<int>{0, 1}) continue;
    const BufferPtr& from = load->from.view.buffer;
    const auto layout = layouts.fragments.find(from.get());
    if (from->type != f32 || from->rank() != 2 || layout == layouts.fragments.end()) continue;
    const std::int64_t m = from->extent(0), n = from->extent(1), groups = threads / 128;
    for (const layout::Division& parts : {layout::Division{groups, 1}, layout::Division{1, groups}})
      if (m == store_rows * parts.along_m && n % (8 * parts.along_n) == 0 &&
          layout->second == layout::wgmma_accumulator(m, n, parts))
        return from;
  }
  return nullptr;
}

bool all_direct(const For& loop, const RowLoop& rows, const layout::Layout& own, const Layouts& layouts) {
  return std::all_of(rows.element.begin(), rows.element.end(), [&](const Stmt& s) {
    const Access* access = fragment_access(s);
    return !access || is_direct(loop, &own, *access, layouts);
  });
}

// The value before it is rounded to the tensor's type, or null if it is not of f32.
Expr unrounded(const RowLoop& rows) {
  const DType type = rows.to->view.buffer->type;
  const bool rounds = rows.value->op == Op::cast && rows.value->type == type && type != f32;
  const Expr& value = rounds ? rows.value->args[0] : rows.value;
  return value->type == f32 ? value : nullptr;
}

Reason reason_of_row(const RowLoop& rows) {
  const Buffer& to = *rows.to->view.buffer;
  return {fmt::format("rows of `{}` are not known to begin and end at multiples of {} bytes", to.name,
                      store_piece_bytes),
          fmt::format(
              "give `{}` a last extent that is a multiple of {}, a constant or one with multiple_of({}), and "
              "let the last index be the column, from a multiple of {} on",
              to.name, store_piece_bytes / to.type.bytes(), store_piece_bytes / to.type.bytes(),
              store_piece_bytes / to.type.bytes())};
}

// The reason why elements of the tensor are not written in pieces.
std::optional<Reason> reason_of_type(const RowLoop& rows, const Expr& value) {
  const Buffer& to = *rows.to->view.buffer;
  const bool is_16 = to.type == bf16 || to.type == f16;
  if (!is_16 && to.type != f32)
    return Reason{fmt::format("rows of {} are stored one element at a time", to.type.name()),
                  "store bf16, f16 or f32"};
  if (!value) return Reason{"the stored value is not of f32", "compute it in f32, and round it when it is stored"};
  if (rows.adds() && is_16 && rows.value->op != Op::cast)
    return Reason{fmt::format("sums of {} are formed from unrounded values, one element at a time", to.type.name()),
                  fmt::format("round what is added, `{}(…)`, or add to f32", to.type.name())};
  return std::nullopt;
}

}  // namespace

int quad_columns(DType type) { return threads_of_row * store_piece_bytes / type.bytes(); }

// A thread has two columns of every eight.
std::int64_t own_place(std::int64_t column, int quad) {
  const std::int64_t block = column / quad, pair = column % quad / 8, thread = column % 8 / 2;
  return block * quad + thread * (quad / threads_of_row) + pair * 2 + column % 2;
}

Planned<RowStore> plan_row_store(const Stmt& s, const Layouts& layouts, int threads, const CudaTarget& target,
                                 const VariablePtr& group, const Facts& facts) {
  const auto* loop = as<For>(s);
  if (!loop || loop->index.size() != 2 || !target.has_wgmma() || threads % 128 != 0) return Reason{};
  auto rows = row_loop(*loop);
  if (!rows) return Reason{};
  const BufferPtr sum = sum_of(*loop, *rows, layouts, threads);
  if (!sum) return Reason{};
  RowStore plan{std::move(*rows), sum};
  const Buffer& to = *plan.rows.to->view.buffer;
  const bool expected = plan.rows.finds_rows();
  const auto slow = [&](Reason reason) { return expected ? std::move(reason) : Reason{}; };
  const Expr value = unrounded(plan.rows);
  if (const auto reason = reason_of_type(plan.rows, value)) return slow(*reason);
  plan.is_bare = plan.rows.element.size() == 1 && value->op == Op::variable;
  // Whole rows of f32 one after the other are written by whole sectors anyway.
  if (!expected && (!plan.is_bare || plan.rows.adds() || to.type == f32)) return Reason{};
  const std::int64_t n = plan.sum->extent(1), groups = threads / 128;
  const auto columns_written = row_columns(*plan.rows.to, loop->index[1], n, group);
  plan.is_window = !columns_written && expected && is_window(*plan.rows.to, *loop, facts);
  if (!columns_written && !plan.is_window) return slow(reason_of_row(plan.rows));
  plan.in_own_order = columns_written && columns_written->in_own_order;
  if (plan.in_own_order && (!plan.is_bare || plan.rows.adds() || to.type == f32)) return Reason{};
  if (to.role != Role::workspace && !target.copy_engine) return Reason{};
  const std::int64_t of_group = plan.sum->extent(0) == store_rows * groups ? n : n / groups;
  const std::int64_t columns = quad_columns(to.type);
  if (of_group % columns != 0)
    return slow({fmt::format("a warp group has {} columns, which is not a multiple of {}", of_group, columns),
                 fmt::format("use tiles with a multiple of {} columns for each warp group", columns)});
  const auto own = layouts.loops.find(s.get());
  if (!plan.is_bare && (own == layouts.loops.end() || own->second != layouts.fragments.at(plan.sum.get()) ||
                        !all_direct(*loop, plan.rows, own->second, layouts)))
    return slow({"the loop computes with fragments that other threads hold", "compute them in a loop of its own"});
  return plan;
}

}  // namespace tegula::passes
