#include "reduce/reduction.hpp"

#include <algorithm>
#include <set>

#include "ir/print.hpp"
#include "ir/verify.hpp"
#include "ir/visit.hpp"
#include "reduce/edits.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::reduce_kernels {

using namespace ir;

namespace {

// Whether the loop still counts up what its condition asks for. Without, it may be endless, and every
// candidate that is costs the whole time-out.
bool counts(const While& loop) {
  const auto read_in = [](const Body& body, const VariablePtr& value) -> VariablePtr {
    for (const Stmt& stmt : body) {
      const auto* let = as<Let>(stmt);
      if (let && let->variable == value && let->value->op == Op::variable) return let->value->variable;
    }
    return nullptr;
  };
  std::set<VariablePtr> asked;
  for_each_variable(loop.condition, [&](const VariablePtr& v) { asked.insert(read_in(loop.test, v)); });
  return std::any_of(loop.body.begin(), loop.body.end(), [&](const Stmt& stmt) {
    const auto* assign = as<Assign>(stmt);
    if (!assign || !asked.contains(assign->variable) || assign->value->op != Op::add) return false;
    const Expr& before = assign->value->args[0];
    return before->op == Op::variable && read_in(loop.body, before->variable) == assign->variable;
  });
}

bool ends(const Kernel& kernel) {
  bool result = true;
  for_each_stmt(kernel, [&](const Stmt& stmt) {
    if (const auto* loop = as<While>(stmt)) result &= is_constant(loop->condition, 0) || counts(*loop);
  });
  return result;
}

// What a loop or branch is without its head.
std::vector<Body> opened(const Stmt& stmt) {
  if (const auto* n = as<If>(stmt)) return {n->then, n->otherwise};
  if (const auto* n = as<For>(stmt)) return {n->body};
  if (const auto* n = as<While>(stmt)) return {n->body};
  return {};
}

std::vector<Expr> simpler(const Expr& e) {
  std::vector<Expr> result;
  if (!is_constant(e)) {
    const DType type = e->held();
    result.push_back(type.is_boolean() ? truth(false) : constant(type, std::int64_t{0}));
    result.push_back(type.is_boolean() ? truth(true) : constant(type, std::int64_t{1}));
  }
  for (const Expr& arg : e->args) {
    if (arg->held() == e->held()) result.push_back(arg);
  }
  return result;
}

class Reduction {
 public:
  Reduction(Kernel kernel, const FirstFailing& first_failing)
      : best_(std::move(kernel)), text_(print(best_)), first_failing_(first_failing) {}

  bool run() { return grids() | statements() | heads() | names() | expressions(); }
  const Kernel& best() const { return best_; }

 private:
  using Kernels = std::vector<Kernel>;

  // An edit that changes nothing fails as before, and would be taken again and again.
  void add(Kernels& list, Kernel candidate) const {
    if (is_well_formed(candidate) && print(candidate) != text_) list.push_back(std::move(candidate));
  }
  bool take(const Kernels& all) {
    const auto found = all.empty() ? std::nullopt : first_failing_(all);
    if (found) {
      best_ = all[*found];
      text_ = print(best_);
    }
    return found.has_value();
  }

  bool grids() {
    bool any = false;
    for (bool again = true; again && best_.grids.size() > 1;) {
      Kernels list;
      for (std::size_t g = 0; g < best_.grids.size(); ++g) add(list, (without_grid(best_, g)));
      any |= again = take(list);
    }
    return any;
  }

  // Removes runs of statements, long ones first.
  bool statements() {
    bool any = false;
    for (int size = std::max(1, count_statements(best_) / 2); size > 0;) {
      Kernels list;
      for (int first = 0; first < count_statements(best_); first += std::max(1, size / 2)) {
        add(list, (repaired(with_statements(best_, first, size, [](const Stmt&) { return Body{}; }))));
      }
      if (take(list))
        any = true;
      else
        size /= 2;
    }
    return any;
  }

  bool heads() {
    Kernels list;
    int number = 0;
    for_each_stmt(best_, [&](const Stmt& stmt) {
      for (const Body& inside : opened(stmt))
        add(list, (repaired(with_statements(best_, number, 1, [&](const Stmt&) { return inside; }))));
      ++number;
    });
    return take(list);
  }

  // Puts values where their names stand.
  bool names() {
    Kernels list;
    int number = 0;
    for_each_stmt(best_, [&](const Stmt& stmt) {
      const auto* let = as<Let>(stmt);
      const bool is_mutable =
          let && let->value->op == Op::variable && let->value->variable->kind == VariableKind::mutable_;
      if (let && !is_mutable) {
        const Kernel named = map_grids(best_, [&](const Grid& grid) {
          return map_exprs(grid.body, [&](const Expr& e) {
            return substitute(e, {{let->variable, let->value}});
          });
        });
        add(list, (with_statements(named, number, 1, [](const Stmt&) { return Body{}; })));
      }
      ++number;
    });
    return take(list);
  }

  bool expressions() {
    bool any = false;
    for (bool again = true; again;) {
      Kernels list;
      bool more = true;
      for (int number = 0; more && list.size() < 400; ++number) {
        std::vector<Expr> choices;
        more = with_expression(best_, number, [&](const Expr& e) {
                 return choices = simpler(e), e;
               }).has_value();
        for (const Expr& choice : choices)
          add(list, (*with_expression(best_, number, [&](const Expr&) { return choice; })));
      }
      any |= again = take(list);
    }
    return any;
  }

  Kernel best_;
  std::string text_;  // of best_
  const FirstFailing& first_failing_;
};

}  // namespace

bool is_well_formed(const Kernel& kernel) {
  try {
    if (!ends(kernel)) return false;
    verify(kernel);
    Signature signature(std::make_shared<const Kernel>(kernel));
    return true;
  } catch (const std::exception&) { return false; }
}

bool reduce_once(Kernel& kernel, const FirstFailing& first_failing) {
  Reduction reduction(kernel, first_failing);
  const bool any = reduction.run();
  kernel = reduction.best();
  return any;
}

}  // namespace tegula::reduce_kernels
