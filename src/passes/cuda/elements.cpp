#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

VariablePtr new_variable(const char* name, DType type, VariableKind kind, const Loc& at) {
  return std::make_shared<const Variable>(Variable{name, type, kind, at});
}

BufferPtr new_tile(const char* name, Space space, DType type, const std::vector<Expr>& shape, const Loc& at) {
  return std::make_shared<const Buffer>(Buffer{name, space, Role::tile, type, shape, false, at});
}

Expr as_stored(const Expr& e, DType type) {
  return e->held() == compute_type(type) ? e : make(Op::cast, compute_type(type), {e}, e->at);
}

namespace {

Expr both(const Expr& a, const Expr& b) { return a ? make(Op::logical_and, boolean, {a, b}, b->at) : b; }

Expr widened(const Expr& e) { return e->held() == i64 ? e : make(Op::cast, i64, {e}, e->at); }

Expr less(Op op, const Expr& a, const Expr& b) { return make(op, boolean, {widened(a), widened(b)}, a->at); }

// A loop over the extents; without any, one iteration.
Stmt loop_over(const std::vector<Expr>& extents, const Loc& at,
               const std::function<Body(const std::vector<Expr>&)>& f) {
  For loop{LoopKind::parallel, {}, {}, extents, 0, {}};
  if (extents.empty()) loop.end.push_back(int32(1, at));
  std::vector<Expr> index;
  constexpr const char* names[] = {"i", "j", "k", "l"};
  for (std::size_t d = 0; d < loop.end.size(); ++d) {
    loop.index.push_back(new_variable(names[d < 4 ? d : 3], i32, VariableKind::index, at));
    loop.begin.push_back(int32(0, at));
    if (d < extents.size()) index.push_back(variable(loop.index.back(), at));
  }
  loop.body = f(index);
  return statement(std::move(loop), at);
}

Expr term(Op op, const Expr& a, std::int64_t b) { return make(op, i32, {a, int32(b, a->at)}, a->at); }

// The coordinates in the view's shape of the element at `at` of the buffer. Last dimensions that both have
// stay what they are.
std::vector<Expr> reshaped(const View& view, const std::vector<Expr>& at) {
  const Buffer& buffer = *view.buffer;
  std::size_t own = buffer.shape.size(), shown = view.shape.size();
  std::vector<Expr> result(shown);
  while (own > 0 && shown > 0 && equal(view.shape[shown - 1], buffer.shape[own - 1]))
    result[--shown] = at[--own];
  Expr flat;
  for (std::size_t d = 0; d < own; ++d)
    flat =
        flat ? make(Op::add, i32, {term(Op::mul, flat, buffer.extent(static_cast<int>(d))), at[d]}, at[d]->at)
             : at[d];
  if (!flat) flat = int32(0, buffer.at);
  std::int64_t inner = 1;
  for (std::size_t d = shown; d-- > 0;) {
    const std::int64_t extent = constant_value(view.shape[d]);
    Expr x = inner == 1 ? flat : term(Op::div, flat, inner);
    result[d] = d == 0 ? x : term(Op::mod, x, extent);
    inner *= extent;
  }
  return result;
}

Body over_fragment(const View& view, const Loc& at, const ElementBody& f) {
  return {loop_over(view.buffer->shape, at, [&](const std::vector<Expr>& own) -> Body {
    const std::vector<Expr> shown = reshaped(view, own);
    std::vector<Expr> index(static_cast<std::size_t>(view.rank()));
    Expr inside;
    for (std::size_t d = 0; d < view.dims.size(); ++d) {
      const ViewDim& dim = view.dims[d];
      const bool from_zero = is_constant(dim.offset, 0);
      const Expr offset = as_stored(dim.offset, i32);
      if (dim.axis < 0) {
        if (!is_constant(view.shape[d], 1))
          inside = both(inside, make(Op::eq, boolean, {shown[d], offset}, at));
        continue;
      }
      const Expr x = from_zero ? shown[d] : make(Op::sub, i32, {shown[d], offset}, at);
      index[static_cast<std::size_t>(dim.axis)] = x;
      if (!from_zero) inside = both(inside, make(Op::ge, boolean, {x, int32(0, at)}, at));
      const std::int64_t extent = view.extent(dim.axis);
      if (extent != constant_value(view.shape[d]))
        inside = both(inside, make(Op::lt, boolean, {x, int32(extent, at)}, at));
    }
    Body body = f(index, {whole(view.buffer), own});
    if (!inside) return body;
    return {statement(If{inside, std::move(body), {}}, at)};
  })};
}

}  // namespace

Expr exists(const Access& access, const Loc& at) {
  Expr result;
  const std::vector<Expr> where = coordinates(access);
  for (std::size_t d = 0; d < where.size(); ++d) {
    const ViewDim& dim = access.view.dims[d];
    result = both(result, less(Op::ge, where[d], int32(0, at)));
    result = both(result, less(Op::lt, where[d], access.view.shape[d]));
    if (dim.low) result = both(result, less(Op::ge, where[d], dim.low));
    if (dim.high) result = both(result, less(Op::lt, where[d], dim.high));
  }
  return result ? result : truth(true, at);
}

Body over_view(const View& view, const Loc& at, const ElementBody& f) {
  if (view.buffer->space == Space::fragment) return over_fragment(view, at, f);
  return {loop_over(view.extents, at, [&](const std::vector<Expr>& index) {
    return f(index, {view, index});
  })};
}

}  // namespace tegula::passes
