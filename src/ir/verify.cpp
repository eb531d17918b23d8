#include "ir/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/children.hpp"
#include "ir/print.hpp"
#include "ir/rows.hpp"
#include "ir/spec.hpp"
#include "ir/visit.hpp"

namespace tegula::ir {
namespace {

// What a place in the program allows.
struct Place {
  bool in_loop = false;        // a serial, unrolled, pipelined or while loop to break out of
  bool elements_only = false;  // inside parallel, gather and the test of a while
  bool reads_only = false;     // inside gather and the test of a while
  bool in_group = false;
  std::size_t shared_variables = 0;  // mutable variables up to here belong to all iterations
};

bool is_element_statement(const Stmt& stmt) {
  if (const auto* loop = as<For>(stmt))
    return loop->kind == LoopKind::serial || loop->kind == LoopKind::unrolled;
  return as<Let>(stmt) || as<Load>(stmt) || as<Store>(stmt) || as<DeclareVar>(stmt) || as<Assign>(stmt) ||
         as<Atomic>(stmt) || as<If>(stmt) || as<While>(stmt) || as<Break>(stmt) || as<Print>(stmt) ||
         as<Assert>(stmt);
}

// Whether nothing is missing that the printer looks at.
bool is_whole(const Stmt& stmt) {
  bool result = true;
  for_each_stmt({stmt}, [&](const Stmt& each) {
    if (const auto* loop = as<For>(each))
      result &= loop->begin.size() == loop->index.size() && loop->end.size() == loop->index.size();
    for_each_view(each, [&](const View& view) {
      result &= view.buffer != nullptr && view.dims.size() == view.shape.size();
    });
    for_each_expr(each, [&](const Expr& e) {
      if (!e) return;
      for_each_node(e, [&](const Expr& node) {
        result &= std::find(node->args.begin(), node->args.end(), nullptr) == node->args.end();
        result &= static_cast<int>(node->args.size()) == arity_of(node->op);
      });
    });
  });
  return result;
}

// A malformed statement may not be fit to be printed either.
std::string shown(const Stmt& stmt) {
  constexpr auto unfit = "a statement that cannot be printed";
  try {
    return is_whole(stmt) ? print(stmt) : unfit;
  } catch (const std::exception&) { return unfit; }
}

class Verifier {
 public:
  Verifier(const Kernel& kernel, Contract contract) : kernel_(kernel), contract_(contract) {}
  void run();

 private:
  [[noreturn]] void fail(std::string_view rule, const Loc& at, const std::string& shown) const {
    throw InternalError(fmt::format("the IR of `{}` is malformed at {}: {}; found\n{}", kernel_.name,
                                    short_location(at), rule, shown));
  }
  void need(bool holds, std::string_view rule, const Loc& at, const std::string& shown) const {
    if (!holds) fail(rule, at, shown);
  }

  // Shows the statement only if the rule is broken: printing is slow, and needs whole operands.
  void need(bool holds, std::string_view rule, const Stmt& stmt, const std::string& subject = "") const {
    if (!holds) fail(rule, stmt->at, (subject.empty() ? "" : subject + " in ") + shown(stmt));
  }

  void signature();
  void define_host(const VariablePtr& v, VariableKind kind);
  void tensor(const BufferPtr& tensor, bool is_workspace);
  void host(const Expr& e, const char* what, const Loc& at, const std::vector<VariablePtr>& also = {});
  void grid(const Grid& grid);

  void body(const Body& body, const Place& place);
  void statement(const Stmt& stmt, Place& place);
  void nested(const Stmt& stmt, const Place& place);
  void loop(const Stmt& stmt, const For& loop, Place place);
  void control(const Stmt& stmt, const Place& place);
  void expression(const Expr& e, const Stmt& stmt);
  void view(const View& view, const Stmt& stmt);
  void define(const VariablePtr& v, const Stmt& stmt);
  void declare(const BufferPtr& b, const Stmt& stmt);
  void assignment(const VariablePtr& v, const Stmt& stmt, const Place& place);
  void contribution(const Stmt& stmt);

  const Kernel& kernel_;
  const Contract contract_;
  std::unordered_set<const Variable*> defined_;       // ever
  std::unordered_set<const Buffer*> declared_;        // ever
  std::vector<const Variable*> variables_;            // in scope, outer ones first
  std::vector<const Buffer*> buffers_;                // in scope
  std::unordered_map<const Buffer*, bool> in_order_;  // how tensors of the grid are contributed to
};

template <class T>
bool among(const std::vector<const T*>& list, const std::shared_ptr<const T>& x) {
  return std::find(list.rbegin(), list.rend(), x.get()) != list.rend();
}

void Verifier::define_host(const VariablePtr& v, VariableKind kind) {
  need(v != nullptr && v->kind == kind && v->type == compute_type(v->type),
       "a parameter is a dim or a scalar", kernel_.at, v ? v->name : "nothing");
  need(defined_.insert(v.get()).second, "a variable is defined once", v->at, v->name);
  variables_.push_back(v.get());
}

void Verifier::host(const Expr& e, const char* what, const Loc& at, const std::vector<VariablePtr>& also) {
  for_each_node(e, [&](const Expr& node) {
    if (const Broken rule = broken_rule(*node)) fail(*rule, at, print(e));
    if (node->op != Op::variable) return;
    const VariablePtr& v = node->variable;
    const bool known = v->kind == VariableKind::processors || among(variables_, v);
    const bool allowed = known && (is_host(v->kind) || std::find(also.begin(), also.end(), v) != also.end());
    if (!allowed) fail(fmt::format("{} depends on dims and scalars of the kernel only", what), at, print(e));
  });
}

void Verifier::tensor(const BufferPtr& tensor, bool is_workspace) {
  need(!tensor->is_tile() && (tensor->role == Role::workspace) == is_workspace,
       "parameters are inputs, outputs or inouts, workspaces are apart", tensor->at, tensor->name);
  if (const Broken rule = broken_rule(*tensor)) fail(*rule, tensor->at, tensor->name);
  for (const Expr& e : tensor->shape) host(e, "an extent of a tensor", tensor->at);
  need(declared_.insert(tensor.get()).second, "a tensor is declared once", tensor->at, tensor->name);
  buffers_.push_back(tensor.get());
}

void Verifier::signature() {
  for (const Dim& dim : kernel_.dims) {
    define_host(dim.variable, VariableKind::dim);
    need(dim.multiple >= 1, "a promised multiple is positive", dim.variable->at, dim.variable->name);
  }
  for (const Parameter& p : kernel_.parameters) {
    need((p.tensor == nullptr) != (p.scalar == nullptr), "a parameter is a tensor or a scalar", kernel_.at,
         kernel_.name);
    if (p.scalar) define_host(p.scalar, VariableKind::scalar);
  }
  for (const Parameter& p : kernel_.parameters) {
    if (p.tensor) tensor(p.tensor, false);
  }
  for (const BufferPtr& w : kernel_.workspaces) tensor(w, true);
  for (const auto& [a, b] : kernel_.may_alias) {
    need(among(buffers_, a) && among(buffers_, b), "only tensors of the kernel alias", kernel_.at,
         kernel_.name);
  }
  for (const Requirement& r : kernel_.requirements) {
    host(r.condition, "a requirement", r.at);
    need(r.condition->held() == boolean, "a requirement is a bool", r.at, print(r.condition));
  }
}

void Verifier::run() {
  signature();
  need(!kernel_.grids.empty(), "a kernel has a grid", kernel_.at, kernel_.name);
  for (const Grid& g : kernel_.grids) grid(g);
}

void Verifier::grid(const Grid& grid) {
  if (const Broken rule = broken_rule(grid)) fail(*rule, grid.at, kernel_.name);
  for (const Expr& e : grid.extents) host(e, "an extent of a grid", grid.at);
  if (grid.hints.together) host(grid.hints.together, "a number of blocks", grid.at);
  const std::size_t before = variables_.size();
  for (const VariablePtr& v : grid.index) {
    need(defined_.insert(v.get()).second, "a variable is defined once", grid.at, v->name);
    variables_.push_back(v.get());
  }
  if (grid.hints.cost) host(grid.hints.cost, "a cost", grid.at, grid.index);
  in_order_.clear();
  body(grid.body, {});
  variables_.resize(before);
}

void Verifier::body(const Body& body, const Place& place) {
  const std::size_t variables = variables_.size(), buffers = buffers_.size();
  Place here = place;
  for (const Stmt& stmt : body) {
    internal_assert(stmt != nullptr, "a statement is missing");
    statement(stmt, here);
  }
  variables_.resize(variables);
  buffers_.resize(buffers);
}

void Verifier::expression(const Expr& e, const Stmt& stmt) {
  const auto* let = as<Let>(stmt);
  const bool may_change = let != nullptr && let->value == e && e->op == Op::variable;
  for_each_node(e, [&](const Expr& node) {
    if (const Broken rule = broken_rule(*node)) fail(*rule, stmt->at, shown(stmt));
    if (node->op != Op::variable) return;
    const VariablePtr& v = node->variable;
    need(v->kind == VariableKind::processors || among(variables_, v), "a variable is used inside its scope",
         stmt, v->name);
    need(may_change || v->kind != VariableKind::mutable_, "a variable that changes is read by a let alone",
         stmt);
  });
}

void Verifier::view(const View& view, const Stmt& stmt) {
  if (const Broken rule = broken_rule(view)) fail(*rule, stmt->at, shown(stmt));
  need(among(buffers_, view.buffer), "a buffer is used inside its scope", stmt, view.buffer->name);
  expressions(view, [&](const Expr& e) { expression(e, stmt); });
}

void Verifier::define(const VariablePtr& v, const Stmt& stmt) {
  need(v != nullptr && v->type == compute_type(v->type), "values exist in f32, f64, i32, i64, u32 and bool",
       stmt);
  need(defined_.insert(v.get()).second || contract_ == Contract::of_roles, "a variable is defined once",
       stmt);
  variables_.push_back(v.get());
}

void Verifier::declare(const BufferPtr& b, const Stmt& stmt) {
  if (const Broken rule = broken_rule(*b)) fail(*rule, stmt->at, shown(stmt));
  need(declared_.insert(b.get()).second || contract_ == Contract::of_roles, "a tile is declared once", stmt);
  buffers_.push_back(b.get());
}

void Verifier::assignment(const VariablePtr& v, const Stmt& stmt, const Place& place) {
  const auto found = std::find(variables_.begin(), variables_.end(), v.get());
  need(found != variables_.end(), "a variable is assigned inside its scope", stmt);
  need(static_cast<std::size_t>(found - variables_.begin()) >= place.shared_variables,
       "iterations and groups that are independent assign their own variables only", stmt);
}

void Verifier::control(const Stmt& stmt, const Place& place) {
  need(!place.elements_only || is_element_statement(stmt), "only element statements stand in parallel loops",
       stmt);
  need(!place.reads_only || as<Let>(stmt) || as<Load>(stmt), "rows and tests only read", stmt);
  need(!as<Break>(stmt) || place.in_loop, "a break leaves a loop that is open here", stmt);
  need(!as<Exit>(stmt) || !place.in_group, "a group does not end the block", stmt);
}

void Verifier::loop(const Stmt& stmt, const For& loop, Place place) {
  const bool group = loop.kind == LoopKind::warps || loop.kind == LoopKind::warp_groups;
  need(!group || !place.in_group, "each_group does not stand in each_group", stmt);
  const bool independent = group || loop.kind == LoopKind::parallel;
  place.in_loop = !independent;
  place.in_group |= group;
  place.elements_only |= loop.kind == LoopKind::parallel;
  if (independent) place.shared_variables = variables_.size();
  body(loop.body, place);
}

void Verifier::nested(const Stmt& stmt, const Place& place) {
  if (const auto* n = as<For>(stmt)) return loop(stmt, *n, place);
  if (const auto* n = as<If>(stmt)) {
    const bool one_branch = n->otherwise.empty() || contract_ == Contract::of_roles;
    need(n->of_rows.empty() || (one_branch && !mistake_in_rows(*n)),
         "a branch for rows changes rows of fragments only", stmt);
    return body(n->then, place), body(n->otherwise, place);
  }
  Place inside = place;
  if (const auto* n = as<While>(stmt)) {
    inside.in_loop = true;
    body(n->body, inside);
  }
}

// Checks the children of a statement in the order in which they are evaluated; bodies whose variables a later
// child reads stay in scope for it.
struct ChildrenCheck {
  std::function<void(const Expr&)> on_expr;
  std::function<void(const View&)> on_view;
  std::function<void(const VariablePtr&)> on_define, on_assign;
  std::function<void(const BufferPtr&)> on_declare;
  std::function<void(const Body&)> on_reads;
  bool reads_first;  // the first body of a gather or a while

  void expr(const Expr& e) { on_expr(e); }
  void view(const View& v) { on_view(v); }
  void define(const VariablePtr& v) { on_define(v); }
  void assign(const VariablePtr& v) { on_assign(v); }
  void declare(const BufferPtr& b) { on_declare(b); }
  void body(const Body& b) {
    if (reads_first) on_reads(b);
    reads_first = false;
  }
};

// In one grid all contributions to a tensor wait for their turn, or none does.
void Verifier::contribution(const Stmt& stmt) {
  const auto* tile = as<Accumulate>(stmt);
  const auto* element = as<Atomic>(stmt);
  if (!tile && !element) return;
  const Buffer* buffer = tile ? tile->to.buffer.get() : element->to.view.buffer.get();
  const bool in_order = tile && tile->order;
  need(in_order_.try_emplace(buffer, in_order).first->second == in_order,
       "contributions to a tensor in one grid are all in order, or none is", stmt);
}

void Verifier::statement(const Stmt& stmt, Place& place) {
  control(stmt, place);
  const std::size_t before = variables_.size();
  const bool optional = as<Copy>(stmt) != nullptr || as<Accumulate>(stmt) != nullptr || as<Turn>(stmt);
  ChildrenCheck check{[&](const Expr& e) {
                        need(e != nullptr || optional, "no operand is missing", stmt->at, kernel_.name);
                        if (e) expression(e, stmt);
                      },
                      [&](const View& v) { view(v, stmt); },
                      [&](const VariablePtr& v) { define(v, stmt); },
                      [&](const VariablePtr& v) { assignment(v, stmt, place); },
                      [&](const BufferPtr& b) { declare(b, stmt); },
                      [&](const Body& reads) {
                        Place inside = place;
                        inside.reads_only = inside.elements_only = true;
                        for (const Stmt& read : reads) statement(read, inside);
                      },
                      as<Gather>(stmt) != nullptr || as<While>(stmt) != nullptr};
  std::visit([&](const auto& node) { children(node, check); }, stmt->node);
  if (const Broken rule = broken_rule(stmt)) fail(*rule, stmt->at, shown(stmt));
  contribution(stmt);
  const bool keeps = as<Let>(stmt) || as<Load>(stmt) || as<DeclareVar>(stmt);
  if (!keeps && !as<For>(stmt)) variables_.resize(before);
  nested(stmt, place);
  if (!keeps) variables_.resize(before);
}

}  // namespace

void verify(const Kernel& kernel, Contract contract) { Verifier(kernel, contract).run(); }

}  // namespace tegula::ir
