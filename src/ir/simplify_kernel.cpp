#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"

namespace tegula::ir {
namespace {

Expr minus(const Expr& a, const Expr& b) { return make(Op::sub, a->held(), {a, b}, a->at); }

bool same_type(const Expr& a, const Expr& b) { return a->held() == b->held() && has_affine_form(a->held()); }

// Whether b <= a wherever the facts hold.
bool at_most(const Expr& b, const Expr& a, const Facts& facts) {
  return same_type(a, b) && bounds(minus(a, b), facts).low >= 0;
}

class Pass {
 public:
  Kernel run(const Kernel& kernel);

 private:
  Expr expr(const Expr& e, const Facts& facts) { return simplify(substitute(e, copies_), facts); }
  View view(const View& view, const Facts& facts);
  Grid grid(const Grid& grid, Facts facts);

  // The facts grow by what the statements of the body tell about those that follow.
  Body body(const Body& body, Facts& facts);
  Body nested(const Body& inner, Facts facts) { return body(inner, facts); }
  Stmt children(const Stmt& stmt, const Facts& facts);
  // False if nothing after the statement is reached.
  bool statement(const Stmt& stmt, Facts& facts, Body& out);
  void let(const Stmt& stmt, const Let& n, Facts& facts, Body& out);
  void loop(const Stmt& stmt, const For& n, const Facts& facts, Body& out);
  void branch(const Stmt& stmt, const If& n, const Facts& facts, Body& out);
  void while_loop(const Stmt& stmt, const While& n, const Facts& facts, Body& out);
  void gather(const Stmt& stmt, const Gather& n, const Facts& facts, Body& out);
  bool leave(const Stmt& stmt, const Expr& condition, Facts& facts, Body& out);

  Substitution copies_;  // lets that are a constant or another variable
};

// What the signature promises.
Facts promised(const Kernel& kernel) {
  Facts facts;
  for (const Dim& dim : kernel.dims) facts.add_multiple(dim.variable, dim.multiple);
  for (const Requirement& r : kernel.requirements) facts.assume(r.condition);
  for (const Parameter& p : kernel.parameters) {
    if (!p.tensor) continue;
    for (const Expr& extent : p.tensor->shape)
      facts.assume(make(Op::ge, boolean, {extent, constant(extent->held(), 0)}));
  }
  return facts;
}

Kernel Pass::run(const Kernel& kernel) {
  Kernel result = kernel;
  const Facts facts = promised(kernel);
  for (Grid& g : result.grids) g = grid(g, facts);
  return result;
}

Grid Pass::grid(const Grid& grid, Facts facts) {
  Grid result = grid;
  for (std::size_t k = 0; k < grid.index.size(); ++k) {
    result.extents[k] = expr(grid.extents[k], facts);
    facts.add_index(grid.index[k], constant(result.extents[k]->held(), 0), result.extents[k]);
  }
  if (grid.hints.together) result.hints.together = expr(grid.hints.together, facts);
  if (grid.hints.cost) result.hints.cost = expr(grid.hints.cost, facts);
  result.body = body(grid.body, facts);
  return result;
}

// Limits that the buffer sets anyway are left out. The shape stays as the buffer has it.
View Pass::view(const View& view, const Facts& facts) {
  View result = view;
  for (std::size_t d = 0; d < result.dims.size(); ++d) {
    ViewDim& dim = result.dims[d];
    dim.offset = expr(dim.offset, facts);
    if (dim.low) dim.low = expr(dim.low, facts);
    if (dim.high) dim.high = expr(dim.high, facts);
    if (dim.low && bounds(dim.low, facts).high <= 0) dim.low = nullptr;
    if (dim.high && at_most(view.shape[d], dim.high, facts)) dim.high = nullptr;
    if (dim.axis < 0) continue;
    Expr& extent = result.extents[static_cast<std::size_t>(dim.axis)];
    if (!equal(extent, view.shape[d])) extent = expr(extent, facts);
  }
  return result;
}

Body Pass::body(const Body& body, Facts& facts) {
  Body out;
  for (const Stmt& stmt : body) {
    if (!statement(stmt, facts, out)) break;
  }
  return out;
}

// The statement with its own expressions and views simplified.
Stmt Pass::children(const Stmt& stmt, const Facts& facts) {
  Mapping mapping;
  mapping.expr = [&](const Expr& e) { return expr(e, facts); };
  mapping.view = [&](const View& v) { return view(v, facts); };
  return map(stmt, mapping);
}

bool Pass::statement(const Stmt& stmt, Facts& facts, Body& out) {
  if (const auto* n = as<Let>(stmt)) return let(stmt, *n, facts, out), true;
  if (const auto* n = as<For>(stmt)) return loop(stmt, *n, facts, out), true;
  if (const auto* n = as<If>(stmt)) return branch(stmt, *n, facts, out), true;
  if (const auto* n = as<While>(stmt)) return while_loop(stmt, *n, facts, out), true;
  if (const auto* n = as<Gather>(stmt)) return gather(stmt, *n, facts, out), true;
  const Stmt simple = children(stmt, facts);
  if (const auto* n = as<Break>(simple)) return leave(simple, n->condition, facts, out);
  if (const auto* n = as<Exit>(simple)) return leave(simple, n->condition, facts, out);
  if (const auto* n = as<Assert>(simple); n && is_constant(n->condition, 1)) return true;
  if (const auto* n = as<Load>(simple); n && !n->variable->type.is_floating()) {
    facts.add_range(n->variable, values_of(n->from.view.buffer->type));
  }
  out.push_back(simple);
  return true;
}

bool Pass::leave(const Stmt& stmt, const Expr& condition, Facts& facts, Body& out) {
  if (is_constant(condition, 0)) return true;
  out.push_back(stmt);
  facts.assume(condition, false);
  return !is_constant(condition);
}

void Pass::let(const Stmt& stmt, const Let& n, Facts& facts, Body& out) {
  const bool reads_mutable = n.value->op == Op::variable && n.value->variable->kind == VariableKind::mutable_;
  const Stmt simple = reads_mutable ? stmt : children(stmt, facts);
  const Expr& value = as<Let>(simple)->value;
  if (!reads_mutable && value->args.empty()) {
    copies_[n.variable] = value;
    return;
  }
  if (!reads_mutable) facts.define(n.variable, value);
  out.push_back(simple);
}

void Pass::loop(const Stmt& stmt, const For& n, const Facts& facts, Body& out) {
  For result = *as<For>(children(stmt, facts));
  Facts inside = facts;
  for (std::size_t k = 0; k < n.index.size(); ++k) {
    const Expr &begin = result.begin[k], &end = result.end[k];
    if (at_most(end, begin, facts)) return;
    if (same_type(begin, end)) inside.add_index(n.index[k], begin, end);
  }
  result.body = body(n.body, inside);
  if (!result.body.empty()) out.push_back(ir::statement(std::move(result), stmt->at));
}

void Pass::branch(const Stmt& stmt, const If& n, const Facts& facts, Body& out) {
  If result{expr(n.condition, facts), {}, {}};
  if (is_constant(result.condition)) {
    // With conditions of rows: those that are not concerned end as they were.
    const Body chosen = nested(result.condition->integer != 0 ? n.then : n.otherwise, facts);
    out.insert(out.end(), chosen.begin(), chosen.end());
    return;
  }
  Facts yes = facts, no = facts;
  yes.assume(result.condition, true);
  no.assume(result.condition, false);
  result.then = body(n.then, yes);
  for (const Expr& e : n.of_rows) result.of_rows.push_back(expr(e, facts));
  if (n.together) result.together = expr(n.together, facts);
  result.otherwise = body(n.otherwise, no);
  if (result.then.empty() && result.otherwise.empty()) return;
  if (result.then.empty()) {
    std::swap(result.then, result.otherwise);
    result.condition = simplify(make(Op::logical_not, boolean, {result.condition}, stmt->at), facts);
  }
  out.push_back(ir::statement(std::move(result), stmt->at));
}

void Pass::while_loop(const Stmt& stmt, const While& n, const Facts& facts, Body& out) {
  Facts tested = facts;
  While result;
  result.test = body(n.test, tested);
  result.condition = expr(n.condition, tested);
  if (is_constant(result.condition, 0)) return;
  result.body = nested(n.body, facts);
  out.push_back(ir::statement(std::move(result), stmt->at));
}

void Pass::gather(const Stmt& stmt, const Gather& n, const Facts& facts, Body& out) {
  Facts inside = facts;
  inside.add_range(n.index, {0, n.to.extent(0) - 1});
  Gather result{view(n.from, facts), view(n.to, facts), n.index, body(n.body, inside), nullptr};
  result.row = expr(n.row, inside);
  out.push_back(ir::statement(std::move(result), stmt->at));
}

// What no statement reads.
struct Unread {
  std::unordered_set<const Variable*> used;
  std::unordered_set<const Buffer*> read;

  explicit Unread(const Body& body) {
    const Effects all = all_effects(body);
    for (const VariablePtr& v : all.used) used.insert(v.get());
    for (const Region& r : all.regions) {
      if (r.touch == Touch::read || r.touch == Touch::combine) read.insert(r.view->buffer.get());
    }
  }

  bool operator()(const VariablePtr& variable) const { return !used.contains(variable.get()); }
  // Tiles in shared memory stay: what a program loads there belongs to its pipeline.
  bool operator()(const BufferPtr& buffer) const {
    return buffer->space == Space::fragment && !read.contains(buffer.get());
  }
};

// Lets, loads and what fills a fragment have no effect but their value; what only they used goes with them.
bool is_unused(const Stmt& stmt, const Unread& unread) {
  if (const auto* let = as<Let>(stmt)) return unread(let->variable);
  if (const auto* load = as<Load>(stmt)) return unread(load->variable);
  if (const auto* declaration = as<Declare>(stmt)) return unread(declaration->tile);
  if (const auto* loop = as<For>(stmt)) return loop->body.empty();
  if (const auto* branch = as<If>(stmt)) return branch->then.empty() && branch->otherwise.empty();
  const Effects own = effects(stmt);
  return std::any_of(own.regions.begin(), own.regions.end(),
                     [&](const Region& r) { return is_write(r.touch) && unread(r.view->buffer); });
}

Body without_unused(Body body) {
  for (bool changed = true; changed;) {
    const Unread unread(body);
    changed = false;
    body = map_body(body, [&](const Stmt& stmt) {
      const bool drop = is_unused(stmt, unread);
      changed |= drop;
      return drop ? Body{} : Body{stmt};
    });
  }
  return body;
}

}  // namespace

Body simplify_expressions(const Body& body) {
  const Facts facts;
  return map_exprs(body, [&](const Expr& e) { return simplify(e, facts); });
}

Kernel simplify(const Kernel& kernel) {
  return map_grids(Pass().run(kernel), [](const Grid& grid) { return without_unused(grid.body); });
}

}  // namespace tegula::ir
