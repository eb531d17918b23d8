#include "passes/cuda/steps_apart.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Along a dimension, in a step: base + factor · step + [low, high], with a base that no step changes. The
// factor is a number or, where that is 0, so many times an expression that no step changes, if there is one.
struct Interval {
  Affine base = {};
  std::int64_t factor = 0, low = 0, high = 0, strides = 0;
  Expr stride = {};

  bool goes_like(const Interval& other) const {
    const bool same_stride = stride && other.stride ? equal(stride, other.stride) : stride == other.stride;
    return factor == other.factor && strides == other.strides && same_stride && equal(base, other.base);
  }
};
using Intervals = std::vector<std::optional<Interval>>;  // one for each dimension; none: not known

// What the loop's statements touch of the tensor; nothing if one of them is of a kind that is not known.
class PlacesOfSteps {
 public:
  PlacesOfSteps(const For& steps, const Buffer& tensor) : steps_(steps), tensor_(tensor) {
    of_steps_.insert(steps.index[0].get());
    for_each_stmt(steps.body, [&](const Stmt& s) {
      for_each_definition(s, [&](const VariablePtr& v) { of_steps_.insert(v.get()); });
    });
    walk(steps.body, nullptr);
  }

  bool known() const { return known_; }
  const std::vector<Intervals>& all() const { return all_; }

 private:
  void walk(const Body& body, const For* elements) {
    for (const Stmt& s : body) {
      const auto* loop = as<For>(s);
      if (const auto* load = as<Load>(s))
        access(load->from, elements);
      else if (const auto* store = as<Store>(s))
        access(store->to, elements);
      else if (const auto* copy = as<Copy>(s))
        window(*copy);
      else
        for_each_view(s, [&](const View& view) { known_ &= view.buffer.get() != &tensor_; });
      for_each_body(s, [&](const Body& inner) {
        walk(inner, loop && loop->kind == LoopKind::parallel ? loop : elements);
      });
    }
  }

  void access(const Access& n, const For* elements) {
    if (n.view.buffer.get() != &tensor_) return;
    known_ &= is_own_shape(n.view);
    Intervals own;
    for (const Expr& e : coordinates(n)) own.push_back(interval_of(e, elements));
    all_.push_back(std::move(own));
  }

  // Handles a copy between the tensor and a tile.
  void window(const Copy& n) {
    const auto of = [&](const View& view, const View& tile) {
      if (view.buffer.get() != &tensor_) return;
      known_ &= is_own_shape(view) && tile.is_tile();
      if (!known_) return;
      Intervals own;
      for (const ViewDim& dim : view.dims) {
        own.push_back(interval_of(dim.offset, nullptr));
        if (own.back() && dim.axis >= 0) own.back()->high += tile.extent(dim.axis) - 1;
      }
      all_.push_back(std::move(own));
    };
    of(n.from, n.to);
    of(n.to, n.from);
  }

  // Whether the expression has one value in all steps.
  bool is_fixed(const Expr& e) const {
    bool fixed = true;
    for_each_variable(e, [&](const VariablePtr& v) {
      fixed &= v->kind != VariableKind::mutable_ && !of_steps_.contains(v.get());
    });
    return fixed;
  }

  std::optional<Interval> interval_of(const Expr& e, const For* elements) const {
    if (!has_affine_form(e->held())) return std::nullopt;
    const Affine form = affine(e);
    Interval result{{}, 0, form.constant, form.constant};
    for (const Affine::Term& term : form.terms) {
      const VariablePtr& v = term.atom->variable;
      if (v && v == steps_.index[0]) {
        result.factor += term.factor;
        continue;
      }
      if (is_fixed(term.atom)) {
        result.base.terms.push_back(term);
        continue;
      }
      if (const Expr stride = stride_of(term.atom); stride && !result.stride) {
        result.stride = stride;
        result.strides = term.factor;
        continue;
      }
      if (!v || !elements) return std::nullopt;
      const auto own = std::find(elements->index.begin(), elements->index.end(), v);
      if (own == elements->index.end()) return std::nullopt;
      const Expr& end = elements->end[static_cast<std::size_t>(own - elements->index.begin())];
      if (!is_constant(end)) return std::nullopt;
      const std::int64_t last = term.factor * (constant_value(end) - 1);
      (last < 0 ? result.low : result.high) += last;
    }
    return result;
  }

  // What the step is multiplied by, if that is all and has one value in all steps.
  Expr stride_of(const Expr& e) const {
    if (e->op != Op::mul) return {};
    for (const std::size_t own : {0, 1})
      if (e->args[own]->variable == steps_.index[0] && is_fixed(e->args[1 - own])) return e->args[1 - own];
    return {};
  }

  const For& steps_;
  const Buffer& tensor_;
  std::unordered_set<const Variable*> of_steps_;  // that a step defines
  bool known_ = true;
  std::vector<Intervals> all_;
};

}  // namespace

bool steps_are_apart(const For& loop, const Buffer& tensor, const std::vector<Expr>& positive) {
  const PlacesOfSteps touched(loop, tensor);
  if (!touched.known() || touched.all().empty()) return false;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    std::optional<Interval> around = touched.all()[0][d];
    for (const Intervals& own : touched.all()) {
      if (!around || !own[d] || !own[d]->goes_like(*around)) {
        around.reset();
        break;
      }
      around->low = std::min(around->low, own[d]->low);
      around->high = std::max(around->high, own[d]->high);
    }
    if (!around) continue;
    const bool moves = std::any_of(positive.begin(), positive.end(),
                                   [&](const Expr& e) { return around->stride && equal(e, around->stride); });
    if (moves && around->factor == 0 && around->high == around->low) return true;
    if (!around->stride && std::abs(around->factor) > around->high - around->low) return true;
  }
  return false;
}

}  // namespace tegula::passes
