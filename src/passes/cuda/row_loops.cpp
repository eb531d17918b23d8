#include "passes/cuda/row_loops.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Sorter {
 public:
  explicit Sorter(const std::vector<VariablePtr>& index)
      : rows_(index.begin(), index.end() - 1), varying_{index.back()} {}

  bool sort(const Body& body) {
    for (std::size_t i = 0; i < body.size(); ++i) {
      const bool is_last = i + 1 == body.size();
      if (!(is_last ? ends(body[i]) : computes(body[i]))) return false;
    }
    return !body.empty();
  }
  RowLoop result;

 private:
  bool varies(const Expr& e) const {
    return std::any_of(varying_.begin(), varying_.end(), [&](const VariablePtr& v) { return uses(e, v); });
  }
  bool varies(const Access& access) const {
    const auto own = [&](const Expr& e) { return varies(e); };
    return std::any_of(access.index.begin(), access.index.end(), own) ||
           std::any_of(access.view.dims.begin(), access.view.dims.end(),
                       [&](const ViewDim& d) { return varies(d.offset); });
  }

  bool computes(const Stmt& s) {
    const auto* let = as<Let>(s);
    const auto* load = as<Load>(s);
    if (!let && !load) return false;
    const bool of_fragment = load && load->from.view.buffer->space == Space::fragment;
    if (of_fragment || (let ? varies(let->value) : varies(load->from))) {
      if (load && !load->from.view.is_tile()) return false;
      varying_.push_back(let ? let->variable : load->variable);
      result.element.push_back(s);
    } else {
      (result.condition ? result.under : result.row).push_back(s);
    }
    return true;
  }

  bool ends(const Stmt& s) {
    if (const auto* branch = as<If>(s)) {
      const bool is_plain = branch->otherwise.empty() && branch->of_rows.empty() && !branch->together;
      if (!is_plain || result.condition || !divide(branch->condition)) return false;
      return sort(branch->then) && std::all_of(limits_.begin(), limits_.end(),
                                               [&](const Expr& e) { return is_limit(e, *result.to); });
    }
    const auto* atomic = as<Atomic>(s);
    if (!as<Store>(s) && !(atomic && atomic->op == AtomicOp::add)) return false;
    result.update = with_row_found(s);
    const auto* store = as<Store>(result.update);
    atomic = as<Atomic>(result.update);
    result.to = store ? &store->to : &atomic->to;
    result.value = store ? store->value : atomic->value;
    return !result.to->view.is_tile() && !result.to->index.empty();
  }

  // What holds for a row is its condition; other parts may say again that elements are in the tensor.
  bool divide(const Expr& condition) {
    if (condition->op == Op::logical_and) return divide(condition->args[0]) && divide(condition->args[1]);
    if (varies(condition)) return limits_.push_back(condition), true;
    result.condition = result.condition
                           ? make(Op::logical_and, boolean, {result.condition, condition}, condition->at)
                           : condition;
    return true;
  }
  static bool is_limit(const Expr& e, const Access& to) {
    if (e->op != Op::lt || !is_own_shape(to.view)) return false;
    const ViewDim& last = to.view.dims.back();
    return !last.low && !last.high && equal(e->args[0], coordinates(to).back()) &&
           equal(e->args[1], to.view.shape.back());
  }

  // Whether the place is computed from the number of the row in a way that no sum of multiples spells, such
  // as a choice: it is a value of the row, then.
  bool is_computed(const Expr& place) const {
    if (varies(place) || !has_affine_form(place->held())) return false;
    const Affine sum = affine(place);
    return std::any_of(sum.terms.begin(), sum.terms.end(), [&](const Affine::Term& term) {
      return term.atom->op != Op::variable &&
             std::any_of(rows_.begin(), rows_.end(),
                         [&](const VariablePtr& v) { return uses(term.atom, v); });
    });
  }

  Stmt with_row_found(const Stmt& update) {
    StmtNode found = *update;
    auto* store = std::get_if<Store>(&found.node);
    Access& to = store ? store->to : std::get<Atomic>(found.node).to;
    if (std::none_of(to.index.begin(), to.index.end(), [&](const Expr& e) { return is_computed(e); }))
      return update;
    for (Expr& place : to.index) {
      if (!is_computed(place)) continue;
      const VariablePtr row = new_variable("row", place->held(), VariableKind::let, update->at);
      (result.condition ? result.under : result.row).push_back(statement(Let{row, place}, update->at));
      place = variable(row, update->at);
    }
    return std::make_shared<const StmtNode>(std::move(found));
  }

  const std::vector<VariablePtr> rows_;  // the indices that say which row
  std::vector<VariablePtr> varying_;
  std::vector<Expr> limits_;  // parts of the condition that differ from element to element
};

}  // namespace

bool RowLoop::adds() const { return as<Atomic>(update) != nullptr; }

bool RowLoop::looks_up() const {
  const auto loads = [](const Stmt& s) { return as<Load>(s) != nullptr; };
  return std::any_of(row.begin(), row.end(), loads) || std::any_of(under.begin(), under.end(), loads);
}

std::vector<VariablePtr> RowLoop::found() const {
  Body of_elements = element;
  of_elements.push_back(update);
  std::unordered_set<VariablePtr> read;
  for (const Stmt& s : of_elements)
    for_each_expr(
        s, [&](const Expr& e) { for_each_variable(e, [&](const VariablePtr& v) { read.insert(v); }); });
  std::vector<VariablePtr> result;
  for (const Body* body : {&row, &under})
    for (const Stmt& s : *body)
      for_each_definition(s, [&](const VariablePtr& v) {
        if (read.contains(v)) result.push_back(v);
      });
  return result;
}

std::optional<RowLoop> row_loop(const For& loop) {
  if (loop.kind != LoopKind::parallel || loop.index.size() < 2) return std::nullopt;
  Sorter sorter(loop.index);
  return sorter.sort(loop.body) ? std::optional(sorter.result) : std::nullopt;
}

For elements_of(const For& loop, const RowLoop& rows) {
  For result = loop;
  result.body = rows.element;
  result.body.push_back(rows.update);
  return result;
}

}  // namespace tegula::passes
