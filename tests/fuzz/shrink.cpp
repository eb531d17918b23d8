#include "fuzz/shrink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/execution/children.hpp"
#include "fuzz/edit.hpp"
#include "fuzz/run.hpp"
#include "ir/verify.hpp"
#include "ir/visit.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::fuzz {
namespace {

using namespace ir;
using Clock = std::chrono::steady_clock;

constexpr std::size_t batch = 12;  // candidates in one child and one compilation
constexpr auto patience = std::chrono::seconds(90);

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

bool is_well_formed(const Program& program) {
  try {
    if (!ends(*program.kernel)) return false;
    verify(*program.kernel);
    Signature signature(program.kernel);
    return broken_contract(program).empty();
  } catch (const std::exception&) { return false; }
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

class Shrinker {
 public:
  Shrinker(const Program& program, const Failure& failure, std::span<const Executor> all,
           std::chrono::seconds timeout)
      : best_(program), failure_(failure), timeout_(timeout), end_(Clock::now() + patience) {
    for (const Executor& executor : all) {
      if (executors_.empty() || executor.name == failure.executor || failure.executor == "process")
        executors_.push_back(executor);
    }
  }

  Program run() {
    while (grids() | statements() | heads() | names() | expressions() | extents() | layouts()) {}
    return best_;
  }
  const Failure& failure() const { return failure_; }

 private:
  using Candidates = std::vector<Program>;

  void add(Candidates& list, Program candidate) {
    if (!is_well_formed(candidate)) return;
    Kernel kernel = *candidate.kernel;
    kernel.name = fmt::format("fuzz_{}_{}", candidate.seed, number_++);  // kernels of one object
    list.push_back(with_kernel(candidate, std::move(kernel)));
  }

  // Takes the first candidate that still fails.
  bool take(const Candidates& all) {
    for (std::size_t at = 0; at < all.size() && Clock::now() < end_; at += batch) {
      const std::span<const Program> some(all.data() + at, std::min(batch, all.size() - at));
      if (take_one_of(some)) return true;
    }
    return false;
  }
  bool take_one_of(std::span<const Program> some) {
    std::vector<Verdict> verdicts;
    if (failure_.executor != "process") verdicts = check_together(some, executors_, timeout_);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Verdict verdict = verdicts.empty() ? check_alone(some[i], executors_, timeout_) : verdicts[i];
      if (verdict.discarded || !verdict.failure || verdict.failure->executor != failure_.executor) continue;
      best_ = some[i];
      failure_ = *verdict.failure;
      return true;
    }
    return false;
  }

  bool grids() {
    bool any = false;
    for (bool again = true; again && best_.kernel->grids.size() > 1;) {
      Candidates list;
      for (std::size_t g = 0; g < best_.kernel->grids.size(); ++g)
        add(list, with_kernel(best_, without_grid(*best_.kernel, g)));
      any |= again = take(list);
    }
    return any;
  }

  // Removes runs of statements, long ones first.
  bool statements() {
    bool any = false;
    for (int size = std::max(1, count_statements(*best_.kernel) / 2); size > 0;) {
      Candidates list;
      for (int first = 0; first < count_statements(*best_.kernel); first += std::max(1, size / 2)) {
        add(list, with_kernel(best_, repaired(with_statements(*best_.kernel, first, size,
                                                              [](const Stmt&) { return Body{}; }))));
      }
      if (take(list))
        any = true;
      else
        size /= 2;
    }
    return any;
  }

  bool heads() {
    Candidates list;
    int number = 0;
    for_each_stmt(*best_.kernel, [&](const Stmt& stmt) {
      for (const Body& inside : opened(stmt))
        add(list, with_kernel(best_, repaired(with_statements(*best_.kernel, number, 1,
                                                              [&](const Stmt&) { return inside; }))));
      ++number;
    });
    return take(list);
  }

  // Puts values where their names stand.
  bool names() {
    Candidates list;
    int number = 0;
    for_each_stmt(*best_.kernel, [&](const Stmt& stmt) {
      const auto* let = as<Let>(stmt);
      const bool is_mutable =
          let && let->value->op == Op::variable && let->value->variable->kind == VariableKind::mutable_;
      if (let && !is_mutable) {
        const Kernel named = map_grids(*best_.kernel, [&](const Grid& grid) {
          return map_exprs(grid.body, [&](const Expr& e) {
            return substitute(e, {{let->variable, let->value}});
          });
        });
        add(list, with_kernel(best_, with_statements(named, number, 1, [](const Stmt&) { return Body{}; })));
      }
      ++number;
    });
    return take(list);
  }

  bool expressions() {
    bool any = false;
    for (bool again = true; again;) {
      Candidates list;
      bool more = true;
      for (int number = 0; more && list.size() < 400; ++number) {
        std::vector<Expr> choices;
        more = with_expression(*best_.kernel, number, [&](const Expr& e) {
                 return choices = simpler(e), e;
               }).has_value();
        for (const Expr& choice : choices)
          add(list, with_kernel(
                        best_, *with_expression(*best_.kernel, number, [&](const Expr&) { return choice; })));
      }
      any |= again = take(list);
    }
    return any;
  }

  bool extents() {
    bool any = false;
    for (bool again = true; again;) {
      Candidates list;
      for (const std::int64_t from : extents_of(best_)) {
        for (const std::int64_t to : {std::int64_t{1}, from / 2, from - 1}) {
          if (to >= 1 && to < from) add(list, with_extent(best_, from, to));
        }
      }
      any |= again = take(list);
    }
    return any;
  }

  // Dense arguments.
  bool layouts() {
    if (std::none_of(best_.arguments.begin(), best_.arguments.end(),
                     [](const Given& g) { return g.layout != 0; }))
      return false;
    Candidates list;
    add(list, with_extent(best_, -1, -1));
    return take(list);
  }

  Program best_;
  Failure failure_;
  std::vector<Executor> executors_;
  std::chrono::seconds timeout_;
  Clock::time_point end_;
  int number_ = 0;
};

}  // namespace

Program shrink(const Program& program, Failure* failure, std::span<const Executor> executors,
               std::chrono::seconds timeout) {
  if (failure->executor == "contract") return program;
  Shrinker shrinker(program, *failure, executors, timeout);
  Program result = shrinker.run();
  *failure = shrinker.failure();
  return result;
}

}  // namespace tegula::fuzz
