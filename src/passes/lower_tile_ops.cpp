#include <limits>

#include "ir/ir.hpp"
#include "ir/visit.hpp"
#include "passes/passes.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

VariablePtr make_variable(const char* name, DType type, VariableKind kind, const Loc& at) {
  return std::make_shared<const Variable>(Variable{name, type, kind, at});
}

// parallel over all axes of a view, with the body for an element.
template <class F>
Stmt over(const std::vector<Expr>& extents, const Loc& at, F body) {
  For loop{LoopKind::parallel, {}, {}, extents, 0, {}};
  std::vector<Expr> index;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    loop.index.push_back(make_variable("i", i32, VariableKind::index, at));
    loop.begin.push_back(int32(0, at));
    index.push_back(variable(loop.index.back(), at));
  }
  loop.body = body(index);
  return statement(std::move(loop), at);
}

Body elements(const std::vector<Expr>& extents, const Loc& at,
              const std::function<Body(const std::vector<Expr>&)>& f) {
  if (extents.empty()) return f({});
  return {over(extents, at, f)};
}

Expr as_stored(const Expr& e, DType type) {
  return e->held() == compute_type(type) ? e : make(Op::cast, type, {e}, e->at);
}

Body lower_fill(const Fill& n, const Loc& at) {
  return elements(n.to.extents, at, [&](const std::vector<Expr>& index) {
    return Body{statement(Store{{n.to, index}, n.value}, at)};
  });
}

Body lower_copy(const Copy& n, const Loc& at) {
  return elements(n.to.extents, at, [&](const std::vector<Expr>& index) {
    const VariablePtr x = make_variable("x", compute_type(n.from.buffer->type), VariableKind::let, at);
    return Body{statement(Load{x, {n.from, index}}, at),
                statement(Store{{n.to, index}, as_stored(variable(x, at), n.to.buffer->type)}, at)};
  });
}

Expr identity(ReduceOp op, DType type, const Loc& at) {
  if (op == ReduceOp::any || op == ReduceOp::all) return truth(op == ReduceOp::all, at);
  if (op != ReduceOp::max && op != ReduceOp::min) {
    return type.is_floating() ? constant(type, 0.0, at) : constant(type, std::int64_t{0}, at);
  }
  const bool high = op == ReduceOp::min;
  if (type.is_floating()) {
    const double inf = std::numeric_limits<double>::infinity();
    return constant(type, high ? inf : -inf, at);
  }
  if (type == u32) return constant(type, high ? std::int64_t{UINT32_MAX} : std::int64_t{0}, at);
  if (type == i64) return constant(type, high ? INT64_MAX : INT64_MIN, at);
  return constant(type, high ? std::int64_t{INT32_MAX} : std::int64_t{INT32_MIN}, at);
}

Expr combine(ReduceOp op, const Expr& a, const Expr& b) {
  const DType type = a->held();
  switch (op) {
    case ReduceOp::sum:
      return make(Op::add, type, {a, b}, b->at);
    case ReduceOp::min:
      return make(Op::min, type, {a, b}, b->at);
    case ReduceOp::max:
      return make(Op::max, type, {a, b}, b->at);
    case ReduceOp::absmax:
      return make(Op::max, type, {a, make(Op::abs, type, {b}, b->at)}, b->at);
    case ReduceOp::any:
      return make(Op::logical_or, type, {a, b}, b->at);
    default:
      return make(Op::logical_and, type, {a, b}, b->at);
  }
}

// One running value for each element of the result.
Body lower_reduce(const Reduce& n, const Loc& at) {
  return elements(n.to.extents, at, [&](const std::vector<Expr>& index) {
    const DType type = compute_type(n.to.buffer->type), from = compute_type(n.from.buffer->type);
    const VariablePtr total = make_variable("total", type, VariableKind::mutable_, at);
    Body result;
    Expr first = identity(n.op, type, at);
    if (!n.overwrite) {
      const VariablePtr old = make_variable("old", type, VariableKind::let, at);
      result.push_back(statement(Load{old, {n.to, index}}, at));
      first = variable(old, at);
    }
    result.push_back(statement(DeclareVar{total, first}, at));
    const VariablePtr k = make_variable("k", i32, VariableKind::index, at);
    const VariablePtr x = make_variable("x", from, VariableKind::let, at);
    const VariablePtr now = make_variable("now", type, VariableKind::let, at);
    std::vector<Expr> source = index;
    source.insert(source.begin() + n.dim, variable(k, at));
    For loop{LoopKind::serial, {k}, {int32(0, at)}, {n.from.extents[static_cast<std::size_t>(n.dim)]}, 0, {}};
    loop.body = {
        statement(Load{x, {n.from, source}}, at), statement(Let{now, variable(total, at)}, at),
        statement(Assign{total, combine(n.op, variable(now, at), as_stored(variable(x, at), type))}, at)};
    result.push_back(statement(std::move(loop), at));
    const VariablePtr sum = make_variable("sum", type, VariableKind::let, at);
    result.push_back(statement(Let{sum, variable(total, at)}, at));
    result.push_back(statement(Store{{n.to, index}, variable(sum, at)}, at));
    return result;
  });
}

// One loop after the other, the last extent innermost.
Body nested_loops(const std::vector<Expr>& extents, std::vector<Expr> index, const Loc& at,
                  const std::function<Body(const std::vector<Expr>&)>& f) {
  if (index.size() == extents.size()) return f(index);
  const VariablePtr i = make_variable("i", i32, VariableKind::index, at);
  For loop{LoopKind::serial, {i}, {int32(0, at)}, {extents[index.size()]}, 0, {}};
  index.push_back(variable(i, at));
  loop.body = nested_loops(extents, index, at, f);
  return {statement(std::move(loop), at)};
}

bool runs_along(const View& view, int dim) { return !view.dims.empty() && view.dims.back().axis == dim; }

// All elements of a tile in their own order, or with rows and columns exchanged.
bool shows_all(const View& view) {
  if (!is_own_shape(view) || view.rank() != 2 || view.dims.size() != 2) return false;
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    const ViewDim& dim = view.dims[d];
    if (dim.axis < 0 || !is_constant(dim.offset, 0)) return false;
    if (view.extent(dim.axis) != view.buffer->extent(static_cast<int>(d))) return false;
  }
  return true;
}

// A matrix that is transposed whole: vectors exchange elements, where a loop would gather each of them.
bool transposes(const Copy& n) {
  const DType type = n.to.buffer->type;
  const bool has_vectors = type.bits() != 64 && type != u32;
  return n.from.buffer != n.to.buffer && type == n.from.buffer->type && has_vectors && shows_all(n.from) &&
         shows_all(n.to) && runs_along(n.from, 0) && runs_along(n.to, 1);
}

// Whether vectors of 32-bit lanes can go along the scan's dimension: one element begins no segment, and the
// elements of a row are contiguous.
bool scans_vectors(const Scan& n) {
  const DType type = compute_type(n.to.buffer->type);
  return !n.starts && type.bits() == 32 && type == compute_type(n.from.buffer->type) &&
         runs_along(n.from, n.dim) && runs_along(n.to, n.dim);
}

// One running value for each row along the scan's dimension. Vectors go across rows, but where the elements
// of a row are contiguous.
Body lower_scan(const Scan& n, const Loc& at) {
  std::vector<Expr> rows = n.from.extents;
  rows.erase(rows.begin() + n.dim);
  const bool along_memory = n.dim == n.from.rank() - 1;
  const auto each = [&](const std::function<Body(const std::vector<Expr>&)>& f) {
    return along_memory ? nested_loops(rows, {}, at, f) : elements(rows, at, f);
  };
  return each([&](const std::vector<Expr>& row) {
    const DType type = compute_type(n.to.buffer->type), from = compute_type(n.from.buffer->type);
    const VariablePtr total = make_variable("total", type, VariableKind::mutable_, at);
    const VariablePtr k = make_variable("k", i32, VariableKind::index, at);
    const VariablePtr x = make_variable("x", from, VariableKind::let, at);
    const VariablePtr before = make_variable("before", type, VariableKind::let, at);
    const Expr none = identity(n.op, type, at), extent = n.from.extents[static_cast<std::size_t>(n.dim)];
    const Expr last = int32(constant_value(extent) - 1, at), step = variable(k, at);
    std::vector<Expr> place = row;
    place.insert(place.begin() + n.dim, n.reverse ? make(Op::sub, i32, {last, step}, at) : step);
    For loop{LoopKind::serial, {k}, {int32(0, at)}, {extent}, 0, {}};
    if (n.starts) {
      const VariablePtr starts = make_variable("starts", boolean, VariableKind::let, at);
      loop.body = {statement(Load{starts, {*n.starts, place}}, at),
                   statement(If{variable(starts, at), {statement(Assign{total, none}, at)}, {}}, at)};
    }
    const Expr sum = combine(n.op, variable(before, at), as_stored(variable(x, at), type));
    const Body rest = {statement(Load{x, {n.from, place}}, at),
                       statement(Let{before, variable(total, at)}, at), statement(Assign{total, sum}, at),
                       statement(Store{{n.to, place}, n.exclusive ? variable(before, at) : sum}, at)};
    loop.body.insert(loop.body.end(), rest.begin(), rest.end());
    return Body{statement(DeclareVar{total, none}, at), statement(std::move(loop), at)};
  });
}

Body lowered(const Body& body) {
  return map_body(body, [](const Stmt& stmt) -> Body {
    if (const auto* fill = as<Fill>(stmt)) return lower_fill(*fill, stmt->at);
    const auto* copy = as<Copy>(stmt);
    if (copy && copy->from.is_tile() && copy->to.is_tile() && !transposes(*copy))
      return lower_copy(*copy, stmt->at);
    const auto* scan = as<Scan>(stmt);
    if (scan && !scans_vectors(*scan)) return lower_scan(*scan, stmt->at);
    const auto* reduce = as<Reduce>(stmt);
    if (reduce && !runs_along(reduce->from, reduce->dim)) return lower_reduce(*reduce, stmt->at);
    return {stmt};
  });
}

}  // namespace

Kernel lower_tile_ops(const Kernel& kernel) {
  return map_grids(kernel, [](const Grid& grid) { return lowered(grid.body); });
}

}  // namespace tegula::passes
