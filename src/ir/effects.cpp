#include "ir/effects.hpp"

#include <algorithm>

#include "ir/children.hpp"

namespace tegula::ir {
namespace {

using Regions = std::vector<Region>;

Region all_of(const View& view, Touch touch) { return {&view, nullptr, touch}; }
Region element(const Access& access, Touch touch) { return {&access.view, &access.index, touch}; }
Touch result(bool overwrite) { return overwrite ? Touch::write : Touch::update; }

// clang-format off
Regions regions(const Let&) { return {}; }
Regions regions(const Load& n) { return {element(n.from, Touch::read)}; }
Regions regions(const Store& n) { return {element(n.to, Touch::write)}; }
Regions regions(const Declare&) { return {}; }
Regions regions(const DeclareVar&) { return {}; }
Regions regions(const Assign&) { return {}; }
Regions regions(const Atomic& n) { return {element(n.to, Touch::combine)}; }
Regions regions(const Copy& n) { return {all_of(n.from, Touch::read), all_of(n.to, Touch::write)}; }
Regions regions(const Gather& n) { return {all_of(n.from, Touch::read), all_of(n.to, Touch::write)}; }
Regions regions(const Fill& n) { return {all_of(n.to, Touch::write)}; }
Regions regions(const Gemm& n) {
  Regions regions;
  for (const View* operand : operands(n)) regions.push_back(all_of(*operand, Touch::read));
  regions.push_back(all_of(n.c, result(n.overwrite)));
  return regions;
}
Regions regions(const Reduce& n) { return {all_of(n.from, Touch::read), all_of(n.to, result(n.overwrite))}; }
Regions regions(const Scan& n) {
  Regions result{all_of(n.from, Touch::read), all_of(n.to, Touch::write)};
  if (n.starts) result.push_back(all_of(*n.starts, Touch::read));
  return result;
}
Regions regions(const Accumulate& n) { return {all_of(n.tile, Touch::read), all_of(n.to, Touch::combine)}; }
Regions regions(const Turn& n) { return {element(n.word, Touch::combine)}; }
Regions regions(const For&) { return {}; }
Regions regions(const If&) { return {}; }
Regions regions(const While&) { return {}; }
Regions regions(const Break&) { return {}; }
Regions regions(const Exit&) { return {}; }
Regions regions(const Print&) { return {}; }
Regions regions(const Assert&) { return {}; }
// clang-format on

// The variables and tiles, from the table of children.
struct Collect {
  Effects& out;
  bool mutable_definition;

  void expr(const Expr& e) {
    if (e) for_each_variable(e, [&](const VariablePtr& v) { out.used.push_back(v); });
  }
  void view(const View& view) {
    expressions(view, [&](const Expr& e) { expr(e); });
  }
  void body(const Body&) {}
  void define(const VariablePtr& v) {
    out.defined.push_back(v);
    if (mutable_definition) out.assigned.push_back(v);
  }
  void assign(const VariablePtr& v) { out.assigned.push_back(v); }
  void declare(const BufferPtr& b) { out.declared.push_back(b); }
};

void add(const Stmt& stmt, Effects& out) {
  out.statements.push_back(stmt);
  std::visit(
      [&](const auto& node) {
        for (const Region& region : regions(node)) out.regions.push_back(region);
        Collect collect{out, as<DeclareVar>(stmt) != nullptr};
        children(node, collect);
      },
      stmt->node);
  out.leaves |= as<Break>(stmt) != nullptr || as<Exit>(stmt) != nullptr;
  out.reports |= as<Print>(stmt) != nullptr || as<Assert>(stmt) != nullptr;
}

void drop_duplicates(std::vector<VariablePtr>& variables) {
  std::vector<VariablePtr> kept;
  for (const VariablePtr& v : variables) {
    if (std::find(kept.begin(), kept.end(), v) == kept.end()) kept.push_back(v);
  }
  variables = std::move(kept);
}

bool any_in(const std::vector<VariablePtr>& a, const std::vector<VariablePtr>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const VariablePtr& v) { return std::find(b.begin(), b.end(), v) != b.end(); });
}

}  // namespace

bool Effects::reads(const BufferPtr& buffer) const {
  return std::any_of(regions.begin(), regions.end(),
                     [&](const Region& r) { return is_read(r.touch) && r.view->buffer == buffer; });
}

bool Effects::writes(const BufferPtr& buffer) const {
  return std::any_of(regions.begin(), regions.end(),
                     [&](const Region& r) { return is_write(r.touch) && r.view->buffer == buffer; });
}

bool Effects::writes_tensors() const { return std::any_of(regions.begin(), regions.end(), is_tensor_write); }

Effects effects(const Stmt& stmt) {
  Effects out;
  add(stmt, out);
  drop_duplicates(out.used);
  return out;
}

Effects all_effects(const Stmt& stmt) { return all_effects(Body{stmt}); }

Effects all_effects(const Body& body) {
  Effects out;
  for_each_stmt(body, [&](const Stmt& stmt) { add(stmt, out); });
  drop_duplicates(out.used);
  drop_duplicates(out.assigned);
  return out;
}

bool conflict(const Effects& a, const Effects& b) {
  for (const Region& x : a.regions) {
    for (const Region& y : b.regions) {
      if (x.view->buffer == y.view->buffer && (is_write(x.touch) || is_write(y.touch))) return true;
    }
  }
  return any_in(a.assigned, b.used) || any_in(b.assigned, a.used) || any_in(a.assigned, b.assigned) ||
         any_in(a.defined, b.used) || any_in(b.defined, a.used) || a.leaves || b.leaves;
}

}  // namespace tegula::ir
