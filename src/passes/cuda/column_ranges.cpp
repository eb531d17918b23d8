#include "passes/cuda/column_ranges.hpp"

#include <algorithm>
#include <set>

#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Where the condition `column < n` or `column >= n` changes, with n where a piece begins; else nothing.
std::optional<std::int64_t> boundary_of(const Expr& condition, const VariablePtr& column, int elements) {
  const bool is_known = condition->op == Op::lt || condition->op == Op::ge;
  if (!is_known || !is_variable(condition->args[0], column) || !is_constant(condition->args[1]))
    return std::nullopt;
  const std::int64_t n = constant_value(condition->args[1]);
  return n % elements == 0 ? std::optional(n) : std::nullopt;
}

class Ranges {
 public:
  explicit Ranges(const RowConversion& plan) : plan_(plan), loop_(*as<For>(plan.loop)) {
    for (const Stmt& s : loop_.body) for_each_expr(s, [&](const Expr& e) { find(e); });
  }

  std::vector<RowConversion> run() const {
    if (inner_.empty()) return {plan_};
    std::vector<RowConversion> result;
    std::int64_t begin = 0;
    for (const std::int64_t end : inner_) result.push_back(range(begin, end)), begin = end;
    result.push_back(range(begin, constant_value(loop_.end.back())));
    return result;
  }

 private:
  void find(const Expr& e) {
    for (const Expr& arg : e->args) find(arg);
    const auto n =
        e->op == Op::select ? boundary_of(e->args[0], loop_.index.back(), plan_.elements) : std::nullopt;
    if (n && *n > 0 && *n < constant_value(loop_.end.back())) inner_.insert(*n);
  }

  Expr decided(const Expr& e, std::int64_t begin) const {
    if (e->op != Op::select) return e;
    const auto n = boundary_of(e->args[0], loop_.index.back(), plan_.elements);
    if (!n) return e;
    const bool is_met = (begin < *n) == (e->args[0]->op == Op::lt);
    return e->args[is_met ? 1 : 2];
  }

  RowConversion range(std::int64_t begin, std::int64_t end) const {
    Mapping mapping;
    mapping.expr = [&](const Expr& e) {
      return rewrite(e, [&](const Expr& x) { return decided(x, begin); });
    };
    For own = loop_;
    own.body = map(loop_.body, mapping);
    own.begin.back() = constant(loop_.begin.back()->held(), begin);
    own.end.back() = constant(loop_.end.back()->held(), end);
    RowConversion result{nullptr, plan_.elements, plan_.statements};
    for (std::size_t i = own.body.size() - 1; i-- > 0;) {
      if (is_needed(own.body, i)) continue;
      own.body.erase(own.body.begin() + static_cast<std::ptrdiff_t>(i));
      result.statements.erase(result.statements.begin() + static_cast<std::ptrdiff_t>(i));
    }
    result.loop = statement(std::move(own), plan_.loop->at);
    return result;
  }

  // Whether a statement behind it uses what it defines.
  static bool is_needed(const Body& body, std::size_t i) {
    bool result = false;
    for_each_definition(body[i], [&](const VariablePtr& v) {
      for (std::size_t k = i + 1; k < body.size(); ++k)
        for_each_expr(body[k], [&](const Expr& e) { result |= uses(e, v); });
    });
    return result;
  }

  const RowConversion& plan_;
  const For& loop_;
  std::set<std::int64_t> inner_;  // where ranges begin, but for the first
};

}  // namespace

std::vector<RowConversion> column_ranges(const RowConversion& plan) { return Ranges(plan).run(); }

std::vector<MovingRows> moving_ranges(const RowConversion& plan) {
  std::vector<MovingRows> result;
  for (const RowConversion& range : column_ranges(plan)) {
    auto moving = range.reads_one_tensor() ? moving_rows(range) : std::nullopt;
    if (!moving) return {};
    result.push_back(std::move(*moving));
  }
  return result;
}

}  // namespace tegula::passes
