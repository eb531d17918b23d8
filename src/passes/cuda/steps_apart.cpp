#include "passes/cuda/steps_apart.hpp"

#include <algorithm>
#include <optional>

#include "ir/affine.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Along a dimension, in a step: factor · step + [low, high].
struct Interval {
  std::int64_t factor = 0, low = 0, high = 0;
};
using Intervals = std::vector<std::optional<Interval>>;  // one for each dimension; none: not known

std::optional<Interval> interval_of(const Expr& e, const For& steps, const For* elements) {
  if (!has_affine_form(e->held())) return std::nullopt;
  const Affine form = affine(e);
  Interval result{0, form.constant, form.constant};
  for (const Affine::Term& term : form.terms) {
    const VariablePtr& v = term.atom->variable;
    if (term.atom->op != Op::variable) return std::nullopt;
    if (v == steps.index[0]) {
      result.factor += term.factor;
      continue;
    }
    if (!elements) return std::nullopt;
    const auto own = std::find(elements->index.begin(), elements->index.end(), v);
    if (own == elements->index.end()) return std::nullopt;
    const Expr& end = elements->end[static_cast<std::size_t>(own - elements->index.begin())];
    if (!is_constant(end)) return std::nullopt;
    const std::int64_t last = term.factor * (constant_value(end) - 1);
    (last < 0 ? result.low : result.high) += last;
  }
  return result;
}

// What the loop's statements touch of the tensor; nothing if one of them is of a kind that is not known.
class PlacesOfSteps {
 public:
  PlacesOfSteps(const For& steps, const Buffer& tensor) : steps_(steps), tensor_(tensor) {
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
    for (const Expr& e : coordinates(n)) own.push_back(interval_of(e, steps_, elements));
    all_.push_back(std::move(own));
  }

  // Handles a copy from the tensor to a tile.
  void window(const Copy& n) {
    known_ &= n.to.buffer.get() != &tensor_;
    if (n.from.buffer.get() != &tensor_) return;
    known_ &= is_own_shape(n.from) && n.to.is_tile();
    if (!known_) return;
    Intervals own;
    for (const ViewDim& dim : n.from.dims) {
      own.push_back(interval_of(dim.offset, steps_, nullptr));
      if (own.back() && dim.axis >= 0) own.back()->high += n.to.extent(dim.axis) - 1;
    }
    all_.push_back(std::move(own));
  }

  const For& steps_;
  const Buffer& tensor_;
  bool known_ = true;
  std::vector<Intervals> all_;
};

}  // namespace

bool steps_are_apart(const For& loop, const Buffer& tensor) {
  const PlacesOfSteps touched(loop, tensor);
  if (!touched.known() || touched.all().empty()) return false;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    std::optional<Interval> around = touched.all()[0][d];
    for (const Intervals& own : touched.all()) {
      if (!around || !own[d] || own[d]->factor != around->factor) {
        around.reset();
        break;
      }
      around->low = std::min(around->low, own[d]->low);
      around->high = std::max(around->high, own[d]->high);
    }
    if (around && around->factor > around->high - around->low) return true;
  }
  return false;
}

}  // namespace tegula::passes
