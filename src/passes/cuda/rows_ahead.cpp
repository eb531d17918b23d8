#include "passes/cuda/rows_ahead.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_flat(const For& loop) {
  return std::all_of(loop.body.begin(), loop.body.end(),
                     [](const Stmt& s) { return as<Load>(s) || as<Let>(s) || as<Store>(s); });
}

// What the work of a step takes from tiles of rings for each row: a statement over elements (i, j), with the
// expressions of i alone replaced by elements of fragments.
class RowReads {
 public:
  RowReads(const For& loop, const Roles& roles) : loop_(loop), roles_(roles) {
    for (const Stmt& s : loop.body) take(s);
  }

  For without() const {
    For result = loop_;
    result.body = needed(rest_);
    return result;
  }
  // What makes the fragments in each row.
  Body made(const VariablePtr& row) const {
    return substitute(needed(made_), {{loop_.index[0], variable(row, row->at)}});
  }
  const std::vector<BufferPtr>& fragments() const { return fragments_; }

 private:
  void take(const Stmt& s) {
    if (const auto* load = as<Load>(s); load && is_of_rows(*load)) {
      of_rows_.emplace(load->variable.get(), true);
      made_.push_back(s);
    } else if (const auto* let = as<Let>(s); let && is_of_rows(let->value)) {
      of_rows_.emplace(let->variable.get(), reads_ring(let->value));
      made_.push_back(s), rest_.push_back(s);
    } else {
      Mapping mapping;
      mapping.expr = [&](const Expr& e) { return replaced(e); };
      rest_.push_back(map(s, mapping));
    }
  }

  bool is_inner(const VariablePtr& v) const {
    if (std::find(loop_.index.begin(), loop_.index.end(), v) != loop_.index.end()) return true;
    return std::any_of(loop_.body.begin(), loop_.body.end(), [&](const Stmt& s) {
      const auto* load = as<Load>(s);
      const auto* let = as<Let>(s);
      return (load && load->variable == v) || (let && let->variable == v);
    });
  }

  bool is_of_rows(const Expr& e) const {
    bool all = true;
    for_each_variable(e, [&](const VariablePtr& v) {
      all = all && v->kind != VariableKind::mutable_ &&
            (v == loop_.index[0] || of_rows_.contains(v.get()) || !is_inner(v));
    });
    return all;
  }

  bool is_of_rows(const Load& load) const {
    if (roles_.ring_of(load.from.view.buffer.get()) < 0) return false;
    bool all = true;
    for (const Expr& e : load.from.index) all = all && is_of_rows(e);
    for_each_expr(load.from.view, [&](const Expr& e) { all = all && is_of_rows(e); });
    return all;
  }

  bool reads_ring(const Expr& e) const {
    bool any = false;
    for_each_variable(e, [&](const VariablePtr& v) {
      const auto own = of_rows_.find(v.get());
      any = any || (own != of_rows_.end() && own->second);
    });
    return any;
  }

  // The largest expressions of rows in it become elements.
  Expr replaced(const Expr& e) {
    if (is_of_rows(e)) return reads_ring(e) ? element(e) : e;
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back(replaced(arg));
    return args == e->args ? e : with_args(e, std::move(args));
  }

  Expr element(const Expr& e) {
    for (const auto& [value, own] : elements_)
      if (equal(value, e)) return variable(own, e->at);
    Buffer rows{"of_rows", Space::fragment, Role::tile, e->held(), {loop_.end[0]}, false, e->at};
    fragments_.push_back(std::make_shared<const Buffer>(std::move(rows)));
    const View view = whole(fragments_.back());
    made_.push_back(statement(Store{{view, {variable(loop_.index[0], e->at)}}, e}, e->at));
    const VariablePtr own = new_variable("of_row", e->held(), VariableKind::let, e->at);
    rest_.push_back(statement(Load{own, {view, {variable(loop_.index[0], e->at)}}}, e->at));
    elements_.emplace_back(e, own);
    return variable(own, e->at);
  }

  // Without definitions of variables that nothing uses.
  static Body needed(Body body) {
    for (std::size_t i = body.size(); i-- > 0;) {
      const Effects own = effects(body[i]);
      const bool is_used = own.defined.empty() || std::any_of(body.begin(), body.end(), [&](const Stmt& s) {
                             const std::vector<VariablePtr> used = effects(s).used;
                             return std::find(used.begin(), used.end(), own.defined[0]) != used.end();
                           });
      if (!is_used) body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return body;
  }

  const For& loop_;
  const Roles& roles_;
  Body made_, rest_;
  std::unordered_map<const Variable*, bool> of_rows_;  // and whether an element of a ring is in it
  std::vector<std::pair<Expr, VariablePtr>> elements_;
  std::vector<BufferPtr> fragments_;
};

// The statements of a step, with those that read rows ahead where the first of them was used.
class Step {
 public:
  Step(const Body& step, const Roles& roles) : step_(step), roles_(roles) {}

  Body run() {
    const auto product = std::find_if(step_.begin(), step_.end(), [](const Stmt& s) { return as<Gemm>(s); });
    if (product == step_.end()) return step_;
    for (const Stmt& s : step_) work(s, &s > &*product);
    if (row_ == nullptr) return step_;
    const For loop{LoopKind::parallel, {row_}, {zero_}, {rows_}, 0, std::move(made_)};
    const Body reads = fresh_copy({statement(loop, row_->at)});
    if (!can_be_ahead(all_effects(reads))) return step_;
    declared_.insert(declared_.end(), reads.begin(), reads.end());
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(place_), declared_.begin(), declared_.end());
    return std::move(result_);
  }

 private:
  void work(const Stmt& s, bool is_behind) {
    const auto* loop = as<For>(s);
    const bool can = is_behind && loop && loop->kind == LoopKind::parallel && loop->index.size() == 2 &&
                     is_flat(*loop) && (!rows_ || equal(rows_, loop->end[0]));
    if (!can) return result_.push_back(s);
    const RowReads reads(*loop, roles_);
    if (reads.fragments().empty()) return result_.push_back(s);
    if (row_ == nullptr) begin(*loop);
    const Body made = reads.made(row_);
    made_.insert(made_.end(), made.begin(), made.end());
    for (const BufferPtr& own : reads.fragments()) declared_.push_back(statement(Declare{own}, own->at));
    result_.push_back(statement(reads.without(), s->at));
  }

  void begin(const For& loop) {
    row_ = loop.index[0], zero_ = loop.begin[0], rows_ = loop.end[0];
    place_ = result_.size();
  }

  // Whether nothing else reads tiles of these rings, and nothing that the reads use is defined behind their
  // place.
  bool can_be_ahead(const Effects& ahead) const {
    std::unordered_set<int> rings;
    for (const Region& r : ahead.regions) rings.insert(roles_.ring_of(r.view->buffer.get()));
    rings.erase(-1);
    for (std::size_t i = 0; i < result_.size(); ++i) {
      const Effects own = all_effects(result_[i]);
      const bool reads = std::any_of(own.regions.begin(), own.regions.end(), [&](const Region& r) {
        return rings.contains(roles_.ring_of(r.view->buffer.get()));
      });
      const bool defines = std::any_of(own.defined.begin(), own.defined.end(), [&](const VariablePtr& v) {
        return std::find(ahead.used.begin(), ahead.used.end(), v) != ahead.used.end();
      });
      if (reads || (defines && i >= place_)) return false;
    }
    return true;
  }

  const Body& step_;
  const Roles& roles_;
  Body result_, made_, declared_;
  VariablePtr row_;
  Expr zero_, rows_;
  std::size_t place_ = 0;
};

bool is_row(const Buffer& b) { return b.space == Space::fragment && b.rank() == 1 && b.type.bytes() == 4; }

}  // namespace

Body rows_ahead(const Body& step, const Roles& roles) { return Step(step, roles).run(); }

bool gain_ahead(const For& loop, const Roles& roles) {
  int products = 0;
  bool by_engine = true;
  for (const Stmt& s : loop.body) {
    products += as<Gemm>(s) != nullptr;
    const auto* declared = as<Declare>(s);
    if (!declared || roles.ring_of(declared->tile.get()) < 0) continue;
    by_engine &= std::any_of(roles.fills.begin(), roles.fills.end(), [&](const auto& fill) {
      return fill.second == declared->tile && roles.copies.contains(fill.first);
    });
  }
  return products == 1 && by_engine;
}

std::vector<BufferPtr> kept_rows(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() != 1 || !is_flat(*loop)) return {};
  std::vector<BufferPtr> result;
  std::unordered_set<const Variable*> kept;  // what the elements are made of
  for (std::size_t i = loop->body.size(); i-- > 0;) {
    const Stmt& s = loop->body[i];
    if (const auto* store = as<Store>(s)) {
      if (!is_row(*store->to.view.buffer)) return {};
      result.push_back(store->to.view.buffer);
    } else if (!kept.contains(effects(s).defined[0].get())) {
      return {};
    }
    for (const VariablePtr& v : effects(s).used) kept.insert(v.get());
  }
  return result;
}

}  // namespace tegula::passes
