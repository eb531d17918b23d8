#include "codegen/next_block.hpp"

#include <algorithm>

#include "codegen/fetch_ahead.hpp"
#include "codegen/rows.hpp"
#include "codegen/tiles.hpp"
#include "ir/effects.hpp"
#include "passes/slice.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

bool multiplies(const Stmt& stmt) { return as<Gemm>(stmt) != nullptr; }
bool is_loop_of_products(const For& loop) {
  return loop.kind == LoopKind::pipelined && std::any_of(loop.body.begin(), loop.body.end(), multiplies);
}

// A loop of products, or one around such a loop.
const For* leads_to_products(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (loop == nullptr || loop->index.size() != 1 || loop->kind == LoopKind::parallel) return nullptr;
  const auto leads = [](const Stmt& inner) { return leads_to_products(inner) != nullptr; };
  const bool any = is_loop_of_products(*loop) || std::any_of(loop->body.begin(), loop->body.end(), leads);
  return any ? loop : nullptr;
}

Expr is_false(const Expr& e) { return make(Op::logical_not, boolean, {e}, e->at); }

// With an end of the block for what leaves the loop around it, or fails.
Stmt with_ends(const Stmt& stmt) {
  if (const auto* assertion = as<Assert>(stmt))
    return statement(Exit{is_false(assertion->condition)}, stmt->at);
  if (const auto* leave = as<Break>(stmt)) return statement(Exit{leave->condition}, stmt->at);
  if (!as<If>(stmt)) return stmt;
  Mapping mapping;
  mapping.body = [](const Body& body) {
    Body result;
    for (const Stmt& inner : body) result.push_back(with_ends(inner));
    return result;
  };
  return map(stmt, mapping);
}

// Appends what a block runs before its first product: of every loop the first iteration.
bool begin(const Body& body, Body& out) {
  for (const Stmt& stmt : body) {
    if (multiplies(stmt)) return true;
    if (const For* loop = leads_to_products(stmt)) {
      const Expr first = loop->begin[0];
      out.push_back(statement(Exit{make(Op::le, boolean, {loop->end[0], first}, stmt->at)}, stmt->at));
      return begin(substitute(loop->body, {{loop->index[0], first}}), out);
    }
    out.push_back(with_ends(stmt));
  }
  return false;
}

bool is_elementary(Op op) {
  return op == Op::exp || op == Op::exp2 || op == Op::log || op == Op::log2 || op == Op::tanh ||
         op == Op::sin || op == Op::cos || op == Op::erf || op == Op::pow;
}

// Rows whose computation takes long and leaves memory alone.
bool is_slow_pass(const Stmt& stmt) {
  const auto op = row_op(stmt);
  if (!op || op->outer.size() != 1) return false;
  bool slow = false;
  for_each_stmt(op->body, [&](const Stmt& inner) {
    for_each_expr(inner, [&](const Expr& e) {
      for_each_node(e, [&](const Expr& node) { slow |= is_elementary(node->op); });
    });
  });
  return slow;
}

// Finds the pass in the last loop of products.
bool find_pass(const Body& body, NextBlock& next) {
  const auto found =
      std::find_if(body.rbegin(), body.rend(), [](const Stmt& s) { return leads_to_products(s); });
  if (found == body.rend()) return false;
  const For& loop = *as<For>(*found);
  const Expr end = loop.end[0], after = make(Op::add, i32, {variable(loop.index[0]), int32(1)}, end->at);
  if (is_loop_of_products(loop)) {
    next.left = make(Op::sub, i32, {end, after}, end->at);
    const auto pass = std::find_if(loop.body.begin(), loop.body.end(), is_slow_pass);
    if (pass != loop.body.end()) next.pass = *pass;
    return next.pass != nullptr;
  }
  const Expr last = make(Op::ge, boolean, {after, end}, end->at);
  next.last = next.last ? make(Op::logical_and, boolean, {next.last, last}, end->at) : last;
  return find_pass(loop.body, next);
}

// Gives the first copies that can be fetched places of their own; the result are the tiles that they fill.
std::vector<BufferPtr> choose(NextBlock& next) {
  std::int64_t bytes = 0;
  std::vector<BufferPtr> tiles;
  for (Stmt& stmt : next.beginning) {
    const auto* copy = as<Copy>(stmt);
    if (copy == nullptr || !is_fetchable(*copy)) continue;
    const Buffer& tile = *copy->to.buffer;
    bytes += copy->to.extent(0) * copy->to.extent(1) * held_bytes(tile.type);
    if (bytes > most_fetched_bytes) break;
    tiles.push_back(copy->to.buffer);
    next.places.push_back(std::make_shared<const Buffer>(
        Buffer{"ahead", tile.space, Role::tile, tile.type, copy->to.extents, false, stmt->at}));
    stmt = statement(Copy{copy->from, whole(next.places.back()), nullptr}, stmt->at);
  }
  return tiles;
}

bool writes(const Effects& effects, const std::function<bool(const Buffer&)>& f) {
  return std::any_of(effects.regions.begin(), effects.regions.end(),
                     [&](const Region& r) { return is_write(r.touch) && f(*r.view->buffer); });
}

// Excludes reports, which would be made twice, slow statements, and stores that others see.
bool is_work_of_a_block(const Stmt& stmt) {
  const Effects e = all_effects(stmt);
  const bool takes_long = std::any_of(e.statements.begin(), e.statements.end(), [](const Stmt& inner) {
    return multiplies(inner) || as<Reduce>(inner) != nullptr;
  });
  return takes_long || e.reports || writes(e, [](const Buffer& buffer) { return !buffer.is_tile(); });
}

bool is_aliased(const Kernel& kernel, const Buffer& buffer) {
  return std::any_of(kernel.may_alias.begin(), kernel.may_alias.end(), [&](const auto& pair) {
    return pair.first.get() == &buffer || pair.second.get() == &buffer;
  });
}

// What the grid writes is not read: where that belongs to the next block, it may not be there yet.
passes::Planned<Body> addresses(const NextBlock& next, const Kernel& kernel, const Grid& grid) {
  const Effects of_grid = all_effects(grid.body);
  passes::SliceRules rules;
  rules.wanted = [&](const Stmt& stmt) {
    const auto* copy = as<Copy>(stmt);
    return copy && std::find(next.places.begin(), next.places.end(), copy->to.buffer) != next.places.end();
  };
  rules.given = [&](const Buffer& buffer) {
    return !is_aliased(kernel, buffer) && !writes(of_grid, [&](const Buffer& b) { return &b == &buffer; });
  };
  rules.refused = is_work_of_a_block;
  rules.left_out = [](const Stmt&) { return false; };
  return passes::slice(next.beginning, rules);
}

}  // namespace

std::optional<NextBlock> next_block(const Kernel& kernel, const Grid& grid) {
  NextBlock next;
  if (!find_pass(grid.body, next) || !begin(grid.body, next.beginning)) return std::nullopt;
  const std::vector<BufferPtr> tiles = choose(next);
  if (next.places.empty()) return std::nullopt;
  auto slice = addresses(next, kernel, grid);
  if (!slice) return std::nullopt;
  // An address that depends on what is fetched would wait for it.
  const Effects e = all_effects(*slice);
  if (std::any_of(tiles.begin(), tiles.end(), [&](const BufferPtr& tile) { return e.reads(tile); }))
    return std::nullopt;
  next.beginning = fresh_copy(*slice);  // it stands within the block whose variables these are
  return next;
}

}  // namespace tegula::codegen
