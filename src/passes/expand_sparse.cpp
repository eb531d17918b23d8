#include "passes/expand_sparse.hpp"

#include "ir/ir.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/lower.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int threads_of_group = 128;

Expr binary(Op op, const Expr& a, const Expr& b) { return make(op, a->held(), {a, b}, a->at); }
Expr number(const Expr& like, std::int64_t x) { return constant(like->held(), x, like->at); }

// Four elements of the dense tile: a value where the metadata say so.
Body four_elements(const Gemm& n, const View& dense, const Expr& row, const Expr& group, const Loc& at) {
  const auto read = [&](const char* name, const View& view, const Expr& column, Body& body) {
    const VariablePtr x = new_variable(name, compute_type(view.buffer->type), VariableKind::let, at);
    body.push_back(statement(Load{x, {view, {row, column}}}, at));
    return variable(x, at);
  };
  const auto let = [&](const char* name, const Expr& value, Body& body) {
    const VariablePtr x = new_variable(name, value->held(), VariableKind::let, at);
    body.push_back(statement(Let{x, value}, at));
    return variable(x, at);
  };
  const Expr two = int32(2, at);
  Body body;
  const Expr byte = read("byte", *n.metadata, binary(Op::div, group, two), body);
  const Expr shift =
      make(Op::cast, byte->held(), {binary(Op::mul, binary(Op::mod, group, two), int32(4, at))}, at);
  const Expr code = let("code", binary(Op::bit_and, binary(Op::shr, byte, shift), number(byte, 15)), body);
  const Expr is_zero = make(Op::eq, boolean, {code, number(code, 0)}, at);
  const Expr pair = let("pair", make(Op::select, code->held(), {is_zero, number(code, 4), code}, at), body);
  const Expr first = binary(Op::bit_and, pair, number(pair, 3)),
             second = binary(Op::shr, pair, number(pair, 2));
  const Expr column = binary(Op::mul, group, two);
  const Expr x = read("x", n.a, column, body);
  const Expr y = read("y", n.a, binary(Op::add, column, int32(1, at)), body);
  const Expr zero = x->held().is_floating() ? constant(x->held(), 0.0, at) : number(x, 0);
  for (int e = 0; e < 4; ++e) {
    const auto stands = [&](const Expr& position) {
      return make(Op::eq, boolean, {position, number(position, e)}, at);
    };
    const Expr rest = make(Op::select, x->held(), {stands(second), y, zero}, at);
    const Expr place = binary(Op::add, binary(Op::mul, group, int32(4, at)), int32(e, at));
    body.push_back(statement(
        Store{{dense, {row, place}}, make(Op::select, x->held(), {stands(first), x, rest}, at)}, at));
  }
  return body;
}

Body expanded(const Gemm& n, const Loc& at) {
  const std::int64_t m = n.a.extent(0), k = n.depth();
  const BufferPtr tile = new_tile("dense", Space::shared, n.a.buffer->type, {int32(m, at), int32(k, at)}, at);
  const VariablePtr row = new_variable("i", i32, VariableKind::index, at),
                    group = new_variable("group", i32, VariableKind::index, at);
  const Expr zero = int32(0, at);
  For loop{LoopKind::parallel, {row, group}, {zero, zero}, {int32(m, at), int32(k / 4, at)}, 0, {}};
  loop.body = four_elements(n, whole(tile), variable(row, at), variable(group, at), at);
  Gemm product = n;
  product.a = whole(tile);
  product.metadata.reset();
  return {statement(Declare{tile}, at), statement(std::move(loop), at), statement(std::move(product), at)};
}

Body expanded(const Body& body, int threads, const std::function<bool(const Gemm&, int)>& stays) {
  Body result;
  for (const Stmt& s : body) {
    const auto* gemm = as<Gemm>(s);
    if (gemm && gemm->metadata && !stays(*gemm, threads)) {
      for (const Stmt& own : expanded(*gemm, s->at)) result.push_back(own);
      continue;
    }
    const auto* loop = as<For>(s);
    Mapping mapping;
    mapping.body = [&](const Body& inner) {
      return expanded(inner, loop ? threads_of(*loop, threads) : threads, stays);
    };
    result.push_back(loop && loop->kind == LoopKind::parallel ? s : map(s, mapping));
  }
  return result;
}

}  // namespace

Kernel expand_sparse(const Kernel& kernel, const std::function<bool(const Gemm&, int)>& stays) {
  Kernel result = kernel;
  for (Grid& grid : result.grids) {
    const int threads = grid.hints.threads > 0 ? grid.hints.threads : threads_of_group;
    grid.body = expanded(grid.body, threads, stays);
  }
  return result;
}

}  // namespace tegula::passes
