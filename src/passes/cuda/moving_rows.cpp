#include "passes/cuda/moving_rows.hpp"

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class StepsOfRows {
 public:
  explicit StepsOfRows(const For& loop) : row_(loop.index[0]) {}

  // Whether it is known without the row; what is read of each row is not.
  bool is_the_same(const Expr& e) const {
    bool result = true;
    for_each_variable(e, [&](const VariablePtr& v) { result &= v != row_ && !contains(found_, v); });
    return result;
  }

  // By how much the coordinate grows with the row.
  std::optional<std::int64_t> step(const Expr& e) const {
    if (is_the_same(e)) return 0;
    if (!has_affine_form(e->held())) return std::nullopt;
    std::int64_t result = 0;
    for (const Affine::Term& term : affine(e).terms) {
      if (is_variable(term.atom, row_))
        result += term.factor;
      else if (!is_the_same(term.atom))
        return std::nullopt;
    }
    return result;
  }

  std::optional<std::vector<std::int64_t>> steps(const Load& load) {
    if (load.from.view.is_tile() || !is_own_shape(load.from.view)) return std::nullopt;
    std::vector<std::int64_t> result;
    for (const Expr& e : coordinates(load.from)) {
      const auto own = step(e);
      if (!own) return std::nullopt;
      result.push_back(*own);
    }
    const bool moves = std::any_of(result.begin(), result.end(), [](std::int64_t own) { return own != 0; });
    if (moves) found_.push_back(load.variable);
    return result;
  }

 private:
  const VariablePtr& row_;
  std::vector<VariablePtr> found_;  // in each row
};

}  // namespace

std::optional<MovingRows> moving_rows(const RowConversion& plan) {
  const For& loop = *as<For>(plan.loop);
  if (loop.index.size() != 2) return std::nullopt;
  MovingRows result{plan, {}};
  StepsOfRows steps_of_rows(loop);
  for (std::size_t i = 0; i + 1 < loop.body.size(); ++i) {
    const Stmt& s = loop.body[i];
    if (const auto* load = as<Load>(s)) {
      auto steps = steps_of_rows.steps(*load);
      if (!steps) return std::nullopt;
      const bool moves = std::any_of(steps->begin(), steps->end(), [](std::int64_t own) { return own != 0; });
      if (moves || plan.statements[i] == RowConversion::Of::piece)
        result.steps.emplace(s.get(), std::move(*steps));
    } else if (const auto* let = as<Let>(s)) {
      const bool of_row = plan.statements[i] == RowConversion::Of::row;
      if (uses(let->value, loop.index[0]) || (of_row && !steps_of_rows.is_the_same(let->value)))
        return std::nullopt;
    }
  }
  if (uses(as<Store>(loop.body.back())->value, loop.index[0])) return std::nullopt;
  return result;
}

}  // namespace tegula::passes
