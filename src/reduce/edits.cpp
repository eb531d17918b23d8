#include "reduce/edits.hpp"

#include <unordered_set>

#include "ir/visit.hpp"

namespace tegula::reduce_kernels {

using namespace ir;

namespace {

class StatementEditor {
 public:
  StatementEditor(int first, int count, const StmtEdit& f) : first_(first), end_(first + count), f_(f) {}

  Body operator()(const Body& body) {
    Body result;
    for (const Stmt& stmt : body) {
      const int number = next_++;
      const bool is_meant = first_ <= number && number < end_;
      Mapping nested;
      nested.body = [this](const Body& b) { return (*this)(b); };
      const Stmt inner = map(stmt, nested);
      if (!is_meant) {
        result.push_back(inner);
        continue;
      }
      for (const Stmt& replacement : f_(stmt)) result.push_back(replacement);
    }
    return result;
  }

 private:
  int next_ = 0, first_, end_;
  const StmtEdit& f_;
};

class Repair {
 public:
  explicit Repair(const Kernel& kernel) {
    for (const Dim& dim : kernel.dims) variables_.insert(dim.variable.get());
    for (const Parameter& p : kernel.parameters) {
      if (p.scalar) variables_.insert(p.scalar.get());
      if (p.tensor) buffers_.insert(p.tensor.get());
    }
    for (const BufferPtr& w : kernel.workspaces) buffers_.insert(w.get());
  }

  Body grid(const Grid& grid) {
    for (const VariablePtr& v : grid.index) variables_.insert(v.get());
    return body(grid.body);
  }

 private:
  Body body(const Body& body) {
    Body result;
    for (const Stmt& stmt : body) {
      define(stmt);
      if (!reaches_all(stmt)) continue;
      Mapping mapping;
      mapping.expr = [this](const Expr& e) { return known(e); };
      mapping.body = [this](const Body& b) { return this->body(b); };
      result.push_back(map(stmt, mapping));
    }
    return result;
  }
  void define(const Stmt& stmt) {
    for_each_definition(stmt, [this](const VariablePtr& v) { variables_.insert(v.get()); });
    if (const auto* n = as<Declare>(stmt)) buffers_.insert(n->tile.get());
    const auto read = [this](const Body& reads) {
      for (const Stmt& s : reads) define(s);
    };
    if (const auto* n = as<Gather>(stmt)) read(n->body);
    if (const auto* n = as<While>(stmt)) read(n->test);
  }
  bool reaches_all(const Stmt& stmt) const {
    bool all = true;
    for_each_view(stmt, [&](const View& v) { all &= buffers_.contains(v.buffer.get()); });
    if (const auto* n = as<Assign>(stmt)) all &= variables_.contains(n->variable.get());
    return all;
  }
  Expr known(const Expr& e) const {
    Substitution zero;
    for_each_variable(e, [&](const VariablePtr& v) {
      if (variables_.contains(v.get()) || v->kind == VariableKind::processors) return;
      zero[v] = v->type.is_boolean() ? truth(false) : constant(v->type, std::int64_t{0});
    });
    return zero.empty() ? e : substitute(e, zero);
  }

  std::unordered_set<const Variable*> variables_;
  std::unordered_set<const Buffer*> buffers_;
};

// Replaces one node, counted over all expressions; shared ones count each time.
class ExpressionEditor {
 public:
  ExpressionEditor(int number, const ExprEdit& f) : left_(number), f_(f) {}

  Expr operator()(const Expr& e) {
    if (e == nullptr || done_) return e;
    if (left_-- == 0) {
      done_ = true;
      return f_(e);
    }
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back((*this)(arg));
    return done_ && !args.empty() ? with_args(e, std::move(args)) : e;
  }
  bool done() const { return done_; }

 private:
  int left_;
  bool done_ = false;
  const ExprEdit& f_;
};

}  // namespace

int count_statements(const Kernel& kernel) {
  int count = 0;
  for_each_stmt(kernel, [&](const Stmt&) { ++count; });
  return count;
}

Kernel with_statements(const Kernel& kernel, int first, int count, const StmtEdit& f) {
  StatementEditor edit(first, count, f);
  return map_grids(kernel, [&](const Grid& grid) { return edit(grid.body); });
}

Kernel repaired(const Kernel& kernel) {
  Repair repair(kernel);
  return map_grids(kernel, [&](const Grid& grid) { return repair.grid(grid); });
}

std::optional<Kernel> with_expression(const Kernel& kernel, int number, const ExprEdit& f) {
  ExpressionEditor edit(number, f);
  Kernel result = map_grids(
      kernel, [&](const Grid& grid) { return map_exprs(grid.body, [&](const Expr& e) { return edit(e); }); });
  for (Grid& grid : result.grids) {
    for (Expr& e : grid.extents) e = edit(e);
  }
  if (!edit.done()) return std::nullopt;
  return result;
}

Kernel without_grid(const Kernel& kernel, std::size_t grid) {
  Kernel result = kernel;
  result.grids.erase(result.grids.begin() + static_cast<std::ptrdiff_t>(grid));
  return result;
}

}  // namespace tegula::reduce_kernels
