#include "passes/expand_sparse.hpp"

#include "ir/codes_24.hpp"
#include "ir/ir.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/lower.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int threads_of_group = 128;

// Four elements of the dense tile: a value where the metadata say so.
Body four_elements(const Gemm& n, const View& dense, const Expr& row, const Expr& group, const Loc& at) {
  const auto times = [&](Op op, const Expr& a, std::int64_t b) {
    return make(op, i32, {a, int32(b, at)}, at);
  };
  Body body;
  const auto read = [&](const char* name, const View& view, const Expr& column) {
    const VariablePtr x = new_variable(name, compute_type(view.buffer->type), VariableKind::let, at);
    body.push_back(statement(Load{x, {view, {row, column}}}, at));
    return variable(x, at);
  };
  const auto let = [&](const char* name, const Expr& value) {
    const VariablePtr x = new_variable(name, value->held(), VariableKind::let, at);
    body.push_back(statement(Let{x, value}, at));
    return variable(x, at);
  };
  const Expr byte = read("byte", *n.metadata, times(Op::div, group, 2));
  const Expr code = let("code", code_24(byte, group, at)), pair = let("pair", positions_24(code, at));
  const Expr first = times(Op::mul, group, 2), second = make(Op::add, i32, {first, int32(1, at)}, at);
  const Expr x = read("x", n.a, first), y = read("y", n.a, second);
  for (int e = 0; e < 4; ++e) {
    const Expr place = make(Op::add, i32, {times(Op::mul, group, 4), int32(e, at)}, at);
    body.push_back(statement(Store{{dense, {row, place}}, element_24(pair, x, y, e, at)}, at));
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
