#include "codegen/rows.hpp"

#include <algorithm>

#include "codegen/tiles.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

VariablePtr index_variable(const std::string& name, const Loc& at) {
  return std::make_shared<const Variable>(Variable{name, i32, VariableKind::index, at});
}

bool depends(const Expr& e, const std::unordered_set<const Variable*>& varying) {
  bool found = false;
  for_each_variable(e, [&](const VariablePtr& v) { found |= varying.contains(v.get()); });
  return found;
}

// Statements with a vector form. Whatever changes from lane to lane is collected on the way, in order.
bool is_vectorisable(const Body& body, std::unordered_set<const Variable*>& varying) {
  for (const Stmt& stmt : body) {
    const bool supported = as<Let>(stmt) || as<Load>(stmt) || as<Store>(stmt) || as<DeclareVar>(stmt) ||
                           as<Assign>(stmt) || as<If>(stmt) || as<For>(stmt);
    if (!supported) return false;
    if (const auto* loop = as<For>(stmt)) {
      if (loop->kind == LoopKind::parallel || depends(loop->begin[0], varying)) return false;
      if (depends(loop->end[0], varying)) return false;
    }
    if (as<DeclareVar>(stmt) != nullptr) varying.insert(as<DeclareVar>(stmt)->variable.get());
    if (const auto* load = as<Load>(stmt)) {
      for (const Expr& at : coordinates(load->from))
        if (depends(at, varying)) varying.insert(load->variable.get());
    }
    const auto* let = as<Let>(stmt);
    if (let != nullptr && depends(let->value, varying)) varying.insert(let->variable.get());
    bool nested = true;
    for_each_body(stmt, [&](const Body& inner) { nested = nested && is_vectorisable(inner, varying); });
    if (!nested) return false;
  }
  return true;
}

// Loops of one iteration are none.
void drop_single_iterations(RowOp& op) {
  Substitution by;
  for (std::size_t i = op.outer.size(); op.vector && i-- > 0;) {
    if (!is_constant(op.outer_extents[i], 1)) continue;
    by.emplace(op.outer[i], int32(0, op.at));
    op.outer.erase(op.outer.begin() + static_cast<std::ptrdiff_t>(i));
    op.outer_extents.erase(op.outer_extents.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (by.empty()) return;
  op.body = substitute(op.body, by);
  for (Expr& e : op.to.index) e = substitute(e, by);
}

std::optional<RowOp> of_parallel(const For& loop, const Loc& at) {
  if (loop.kind != LoopKind::parallel || loop.index.empty()) return std::nullopt;
  RowOp op;
  op.outer.assign(loop.index.begin(), loop.index.end() - 1);
  op.outer_extents.assign(loop.end.begin(), loop.end.end() - 1);
  op.lane = loop.index.back();
  op.extent = loop.end.back();
  op.body = loop.body;
  op.at = at;
  std::unordered_set<const Variable*> varying{op.lane.get()};
  op.vector = is_vectorisable(op.body, varying);
  drop_single_iterations(op);
  return op;
}

// The reduction must have contiguous elements; others have become parallel loops.
std::optional<RowOp> of_reduce(const Reduce& n, const Loc& at) {
  RowOp op;
  op.at = at;
  op.reduces = true;
  op.op = n.op;
  op.overwrite = n.overwrite;
  op.lane = index_variable("j", at);
  op.extent = n.from.extents[static_cast<std::size_t>(n.dim)];
  Access from{n.from, {}};
  op.to = Access{n.to, {}};
  for (int axis = 0; axis < n.from.rank(); ++axis) {
    if (axis == n.dim) {
      from.index.push_back(variable(op.lane));
      continue;
    }
    op.outer.push_back(index_variable("i", at));
    op.outer_extents.push_back(n.from.extents[static_cast<std::size_t>(axis)]);
    from.index.push_back(variable(op.outer.back()));
    op.to.index.push_back(variable(op.outer.back()));
  }
  op.value = std::make_shared<const Variable>(
      Variable{"x", compute_type(n.from.buffer->type), VariableKind::let, at});
  op.body = {statement(Load{op.value, from}, at)};
  drop_single_iterations(op);
  return op;
}

// What a region touches, as coordinates of the buffer.
struct Touched {
  const Buffer* buffer;
  bool writes;
  bool known;  // the coordinates are those of one element in the buffer's own shape
  std::vector<Expr> at;
  const View* view = nullptr;
};

void touched_by(const Access& access, bool writes, std::vector<Touched>& out) {
  out.push_back(
      {access.view.buffer.get(), writes, !is_reshaped(access.view), coordinates(access), &access.view});
}

std::vector<Touched> touched(const RowOp& op) {
  std::vector<Touched> result;
  for_each_stmt(op.body, [&](const Stmt& stmt) {
    if (const auto* load = as<Load>(stmt)) {
      touched_by(load->from, false, result);
    } else if (const auto* store = as<Store>(stmt)) {
      touched_by(store->to, true, result);
    } else {
      const Effects e = effects(stmt);
      for (const Region& region : e.regions) {
        result.push_back({region.view->buffer.get(), is_write(region.touch), false, {}});
      }
    }
  });
  if (op.reduces) touched_by(op.to, true, result);
  return result;
}

// The index, or the index and what no index of the op changes.
bool is_moved_index(const Expr& e, const VariablePtr& index, const RowOp& op) {
  if (is_variable(e, index)) return true;
  const auto is_same = [&](const Expr& rest) {
    return !uses(rest, op.lane) && std::none_of(op.outer.begin(), op.outer.end(),
                                                [&](const VariablePtr& v) { return uses(rest, v); });
  };
  return e->op == Op::add && ((is_variable(e->args[0], index) && is_same(e->args[1])) ||
                              (is_variable(e->args[1], index) && is_same(e->args[0])));
}

// Where the elements of a row begin, if that is a constant.
std::optional<std::int64_t> constant_offset(const Expr& e, const VariablePtr& lane) {
  if (is_variable(e, lane)) return 0;
  if (e->op != Op::add) return std::nullopt;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    if (is_variable(e->args[i], lane) && is_constant(e->args[1 - i])) return constant_value(e->args[1 - i]);
  return std::nullopt;
}

// Whether the limits of the two views, or the numbers of the row's elements, say that they share no element.
bool are_apart(const Touched& a, const Touched& b, const RowOp& op) {
  if (!a.known || !b.known || !a.view || !b.view || a.at.size() != b.at.size()) return false;
  for (std::size_t d = 0; d < a.at.size(); ++d) {
    const ViewDim &x = a.view->dims[d], &y = b.view->dims[d];
    if ((x.high && y.low && equal(x.high, y.low)) || (y.high && x.low && equal(y.high, x.low))) return true;
    const auto first = constant_offset(a.at[d], op.lane), second = constant_offset(b.at[d], op.lane);
    if (first && second && is_constant(op.extent) && std::abs(*first - *second) >= constant_value(op.extent))
      return true;
  }
  return false;
}

// Both touch an element of the same row only from the same iteration over `indices`.
bool same_iteration(const Touched& a, const Touched& b, const std::vector<VariablePtr>& indices,
                    const RowOp& op) {
  if (!a.known || !b.known || a.at.size() != b.at.size()) return false;
  return std::all_of(indices.begin(), indices.end(), [&](const VariablePtr& index) {
    for (std::size_t d = 0; d < a.at.size(); ++d) {
      if (is_moved_index(a.at[d], index, op) && equal(a.at[d], b.at[d])) return true;
    }
    return false;
  });
}

// Whether one op may begin an iteration over `indices` before the other has finished its last one. Tensors
// that are written share no memory with others, nor do tiles, so only what both touch of one of them counts.
bool compatible(const RowOp& op, const RowOp& other, const std::vector<VariablePtr>& indices) {
  const std::vector<Touched> mine = touched(op), theirs = touched(other);
  for (const Touched& a : mine) {
    for (const Touched& b : theirs) {
      const bool matters = a.buffer == b.buffer && (a.writes || b.writes);
      if (matters && !same_iteration(a, b, indices, op) && !are_apart(a, b, op)) return false;
    }
  }
  return true;
}

bool reports(const RowOp& op) {
  bool found = false;
  for_each_stmt(op.body, [&](const Stmt& stmt) { found |= effects(stmt).reports; });
  return found;
}

bool writes_tensors(const RowOp& op) { return all_effects(op.body).writes_tensors(); }

bool same_extents(const RowOp& a, const RowOp& b) {
  if (a.outer.size() != b.outer.size() || !equal(a.extent, b.extent)) return false;
  for (std::size_t i = 0; i < a.outer.size(); ++i) {
    if (!equal(a.outer_extents[i], b.outer_extents[i])) return false;
  }
  return true;
}

}  // namespace

std::optional<RowOp> row_op(const Stmt& stmt) {
  if (const auto* loop = as<For>(stmt)) return of_parallel(*loop, stmt->at);
  if (const auto* reduce = as<Reduce>(stmt)) return of_reduce(*reduce, stmt->at);
  return std::nullopt;
}

std::optional<RowOp> aligned(const RowOp& op, const RowOp& first) {
  if (!same_extents(op, first)) return std::nullopt;
  Substitution by{{op.lane, variable(first.lane)}};
  for (std::size_t i = 0; i < op.outer.size(); ++i) by.emplace(op.outer[i], variable(first.outer[i]));
  RowOp result = op;
  result.outer = first.outer;
  result.lane = first.lane;
  result.body = substitute(op.body, by);
  if (op.reduces) {
    for (Expr& e : result.to.index) e = substitute(e, by);
  }
  return result;
}

bool can_join(const RowOp& op, const std::vector<RowOp>& group, bool tensors_are_apart) {
  if (reports(op)) return false;
  if (!tensors_are_apart && (writes_tensors(op) || std::any_of(group.begin(), group.end(), writes_tensors)))
    return false;
  return std::all_of(group.begin(), group.end(),
                     [&](const RowOp& other) { return !reports(other) && compatible(op, other, op.outer); });
}

bool can_share_pass(const RowOp& op, const std::vector<RowOp>& pass) {
  std::vector<VariablePtr> indices = op.outer;
  indices.push_back(op.lane);
  return op.vector && std::all_of(pass.begin(), pass.end(), [&](const RowOp& other) {
           return other.vector && compatible(op, other, indices);
         });
}

std::optional<RowFactor> factor_of_row(const RowOp& op) {
  if (op.reduces || !op.vector || op.outer.empty() || op.body.size() != 3) return std::nullopt;
  const auto* store = as<Store>(op.body.back());
  if (!store || !store->to.view.is_tile() || store->to.view.buffer->type != f32) return std::nullopt;
  const Expr& product = store->value;
  if (product->op != Op::mul || product->type != f32) return std::nullopt;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    const auto *element = as<Load>(op.body[i]), *of_row = as<Load>(op.body[1 - i]);
    if (!element || !of_row || of_row->from.view.buffer == store->to.view.buffer) continue;
    const auto at = coordinates(of_row->from);
    const bool in_place = element->from.view.buffer == store->to.view.buffer &&
                          equal(coordinates(element->from), coordinates(store->to)) &&
                          std::none_of(at.begin(), at.end(), [&](const Expr& e) { return uses(e, op.lane); });
    const Expr &left = product->args[0], &right = product->args[1];
    const bool multiplies = (is_variable(left, element->variable) && is_variable(right, of_row->variable)) ||
                            (is_variable(right, element->variable) && is_variable(left, of_row->variable));
    if (in_place && multiplies) return RowFactor{variable(of_row->variable), of_row};
  }
  return std::nullopt;
}

std::unordered_set<const Buffer*> of_running_maxima(const Body& loop) {
  std::unordered_set<const Buffer*> result;
  for (const Stmt& stmt : loop) {
    if (const auto* reduce = as<Reduce>(stmt); reduce && reduce->op == ReduceOp::max && !reduce->overwrite)
      result.insert(reduce->to.buffer.get());
    const Effects e = all_effects(stmt);
    const bool reads = std::any_of(e.regions.begin(), e.regions.end(), [&](const Region& r) {
      return is_read(r.touch) && result.contains(r.view->buffer.get());
    });
    for (const Region& r : e.regions)
      if (reads && is_write(r.touch) && r.view->is_tile()) result.insert(r.view->buffer.get());
  }
  return result;
}

}  // namespace tegula::codegen
