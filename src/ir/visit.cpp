#include "ir/visit.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "ir/children.hpp"
#include "ir/view.hpp"

namespace tegula::ir {
namespace {

// Ignores every child; visitors override what they look at.
struct Ignore {
  void expr(const Expr&) {}
  void view(const View&) {}
  void body(const Body&) {}
  void define(const VariablePtr&) {}
  void assign(const VariablePtr&) {}
  void declare(const BufferPtr&) {}
};

template <class F>
void visit_children(const Stmt& stmt, F&& f) {
  std::visit([&](const auto& node) { children(node, f); }, stmt->node);
}

class Walk {
 public:
  explicit Walk(const std::function<void(const Expr&)>& f) : f_(f) {}

  void operator()(const Expr& e) {
    if (!enter(e.get())) return;
    for (const Expr& arg : e->args) {
      if (arg) (*this)(arg);  // a missing one is for the verifier to report
    }
    f_(e);
  }

 private:
  // Most expressions have few nodes: a search among them costs less than a set.
  bool enter(const ExprNode* node) {
    if (count_ < few_.size()) {
      const auto end = few_.begin() + count_;
      if (std::find(few_.begin(), end, node) != end) return false;
      few_[count_++] = node;
      if (count_ == few_.size()) many_.insert(few_.begin(), few_.end());
      return true;
    }
    return many_.insert(node).second;
  }

  const std::function<void(const Expr&)>& f_;
  std::array<const ExprNode*, 32> few_;
  std::size_t count_ = 0;
  std::unordered_set<const ExprNode*> many_;
};

class Rewrite {
 public:
  explicit Rewrite(const ExprMap& f) : f_(f) {}

  Expr operator()(const Expr& e) {
    if (e->args.empty()) return f_(e);
    if (const auto found = known_.find(e.get()); found != known_.end()) return found->second;
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back((*this)(arg));
    return known_.emplace(e.get(), f_(with_args(e, std::move(args)))).first->second;
  }

 private:
  const ExprMap& f_;
  std::unordered_map<const ExprNode*, Expr> known_;
};

bool same(const Body& a, const Body& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

bool same(const View& a, const View& b) {
  const auto same_dim = [](const ViewDim& x, const ViewDim& y) {
    return x.offset == y.offset && x.low == y.low && x.high == y.high && x.axis == y.axis;
  };
  return a.buffer == b.buffer && a.shape == b.shape && a.extents == b.extents &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(), same_dim);
}

// Applies a mapping to the children of a copied node and notes whether one of them changed.
struct Apply {
  const Mapping& mapping;
  bool changed = false;

  template <class T>
  void replace(T& child, const std::function<T(const T&)>& f) {
    if (child == nullptr || !f) return;
    T result = f(child);
    if (result == child) return;
    child = std::move(result);
    changed = true;
  }
  void expr(Expr& e) { replace(e, mapping.expr); }
  void define(VariablePtr& v) { replace(v, mapping.variable); }
  void assign(VariablePtr& v) { replace(v, mapping.variable); }
  void declare(BufferPtr& b) { replace(b, mapping.buffer); }
  void view(View& view) {
    if (mapping.view) return replace_view(view);
    const bool is_whole = is_own_shape(view);
    replace(view.buffer, mapping.buffer);
    expressions(view, [&](Expr& e) { expr(e); });
    // A tensor's extents may have a shorter form; in that its view would look like one of another shape.
    if (is_whole) view.shape = view.buffer->shape;
  }
  void replace_view(View& view) {
    View result = mapping.view(view);
    if (same(result, view)) return;
    view = std::move(result);
    changed = true;
  }
  void body(Body& body) {
    if (!mapping.body) return;
    Body result = mapping.body(body);
    if (same(result, body)) return;
    body = std::move(result);
    changed = true;
  }
};

// Gives every variable and tile that a body defines a new one.
class Fresh {
 public:
  Body operator()(const Body& body) {
    collect(body);
    return rename_buffers(substitute(body, variables_), tiles_);
  }

 private:
  void collect(const Body& body) {
    for_each_stmt(body, [&](const Stmt& stmt) {
      for_each_definition(stmt, [&](const VariablePtr& v) {
        variables_.emplace(v, variable(std::make_shared<const Variable>(*v), v->at));
      });
      if (const auto* declare = as<Declare>(stmt)) {
        tiles_.emplace(declare->tile, std::make_shared<const Buffer>(*declare->tile));
      }
    });
  }

  Substitution variables_;
  BufferRenaming tiles_;
};

}  // namespace

void for_each_stmt(const Body& body, const std::function<void(const Stmt&)>& f) {
  for (const Stmt& stmt : body) {
    f(stmt);
    for_each_body(stmt, [&](const Body& inner) { for_each_stmt(inner, f); });
  }
}

void for_each_stmt(const Kernel& kernel, const std::function<void(const Stmt&)>& f) {
  for (const Grid& grid : kernel.grids) for_each_stmt(grid.body, f);
}

void for_each_body(const Stmt& stmt, const std::function<void(const Body&)>& f) {
  struct Bodies : Ignore {
    const std::function<void(const Body&)>& f;
    explicit Bodies(const std::function<void(const Body&)>& f) : f(f) {}
    void body(const Body& b) { f(b); }
  };
  visit_children(stmt, Bodies(f));
}

void for_each_view(const Stmt& stmt, const std::function<void(const View&)>& f) {
  struct Views : Ignore {
    const std::function<void(const View&)>& f;
    explicit Views(const std::function<void(const View&)>& f) : f(f) {}
    void view(const View& v) { f(v); }
  };
  visit_children(stmt, Views(f));
}

void for_each_expr(const View& view, const std::function<void(const Expr&)>& f) { expressions(view, f); }

void for_each_expr(const Stmt& stmt, const std::function<void(const Expr&)>& f) {
  struct Exprs : Ignore {
    const std::function<void(const Expr&)>& f;
    explicit Exprs(const std::function<void(const Expr&)>& f) : f(f) {}
    void expr(const Expr& e) {
      if (e) f(e);
    }
    void view(const View& v) { expressions(v, f); }
  };
  visit_children(stmt, Exprs(f));
}

void for_each_definition(const Stmt& stmt, const std::function<void(const VariablePtr&)>& f) {
  struct Definitions : Ignore {
    const std::function<void(const VariablePtr&)>& f;
    explicit Definitions(const std::function<void(const VariablePtr&)>& f) : f(f) {}
    void define(const VariablePtr& v) { f(v); }
  };
  visit_children(stmt, Definitions(f));
}

void for_each_node(const Expr& e, const std::function<void(const Expr&)>& f) { Walk{f}(e); }

void for_each_variable(const Expr& e, const std::function<void(const VariablePtr&)>& f) {
  for_each_node(e, [&](const Expr& node) {
    if (node->op == Op::variable) f(node->variable);
  });
}

bool uses(const Expr& e, const VariablePtr& variable) {
  bool found = false;
  for_each_variable(e, [&](const VariablePtr& v) { found |= v == variable; });
  return found;
}

bool is_variable(const Expr& e, const VariablePtr& variable) {
  return e->op == Op::variable && e->variable == variable;
}

Expr with_args(const Expr& e, std::vector<Expr> args) {
  return args == e->args ? e : make(e->op, e->type, std::move(args), e->at);
}

Expr rewrite(const Expr& e, const ExprMap& f) { return Rewrite(f)(e); }

View map(const View& view, const Mapping& mapping) {
  View result = view;
  Apply{mapping}.view(result);
  return result;
}

Stmt map(const Stmt& stmt, const Mapping& mapping) {
  Apply apply{mapping};
  return std::visit(
      [&](auto node) {
        children(node, apply);
        return apply.changed ? statement(std::move(node), stmt->at) : stmt;
      },
      stmt->node);
}

Body map(const Body& body, const Mapping& mapping) {
  Body result;
  for (const Stmt& stmt : body) result.push_back(map(stmt, mapping));
  return result;
}

Body map_exprs(const Body& body, const ExprMap& f) {
  Mapping mapping{f, {}, {}, {}, {}};
  mapping.body = [&](const Body& inner) { return map(inner, mapping); };
  return map(body, mapping);
}

Body map_body(const Body& body, const std::function<Body(const Stmt&)>& f) {
  const Mapping nested{{}, [&](const Body& inner) { return map_body(inner, f); }, {}, {}, {}};
  Body result;
  for (const Stmt& stmt : body) {
    for (const Stmt& replacement : f(map(stmt, nested))) result.push_back(replacement);
  }
  return result;
}

Kernel map_grids(const Kernel& kernel, const std::function<Body(const Grid&)>& f) {
  Kernel result = kernel;
  for (Grid& grid : result.grids) grid.body = f(grid);
  return result;
}

Expr substitute(const Expr& e, const Substitution& by) {
  return rewrite(e, [&](const Expr& node) {
    if (node->op != Op::variable) return node;
    const auto found = by.find(node->variable);
    return found == by.end() ? node : found->second;
  });
}

Body substitute(const Body& body, const Substitution& by) {
  Mapping mapping;
  mapping.expr = [&](const Expr& e) { return substitute(e, by); };
  mapping.variable = [&](const VariablePtr& v) {
    const auto found = by.find(v);
    if (found == by.end()) return v;
    internal_assert(found->second->op == Op::variable,
                    "a variable with a place of definition becomes a value");
    return found->second->variable;
  };
  mapping.body = [&](const Body& inner) { return map(inner, mapping); };
  return map(body, mapping);
}

Body rename_buffers(const Body& body, const BufferRenaming& by) {
  Mapping mapping;
  mapping.buffer = [&](const BufferPtr& b) {
    const auto found = by.find(b);
    return found == by.end() ? b : found->second;
  };
  mapping.body = [&](const Body& inner) { return map(inner, mapping); };
  return map(body, mapping);
}

Body fresh_copy(const Body& body) { return Fresh()(body); }

}  // namespace tegula::ir
