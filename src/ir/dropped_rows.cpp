#include "ir/dropped_rows.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::ir {

namespace {

constexpr int largest_value = 64;  // nodes of an expression that stands for a variable

bool uses_mutable(const Expr& e) {
  bool found = false;
  for_each_variable(e, [&](const VariablePtr& v) { found |= v->kind == VariableKind::mutable_; });
  return found;
}

}  // namespace

Values::Values(const Body& block) : parents_{-1} {
  for (const Region& r : all_effects(block).regions) {
    if (is_tensor_write(r)) written_.push_back(r.view->buffer.get());
  }
  body(block, 0);
}

int Values::inner(int scope) {
  parents_.push_back(scope);
  return static_cast<int>(parents_.size()) - 1;
}

void Values::body(const Body& statements, int scope) {
  for (const Stmt& s : statements) {
    const bool repeats = as<For>(s) || as<Gather>(s);
    const int own = repeats ? inner(scope) : scope;
    for_each_definition(s, [&](const VariablePtr& v) { define(v, own); });
    if (const auto* n = as<Declare>(s)) declared_[n->tile.get()] = scope;
    if (const auto* n = as<Let>(s)) let(*n);
    if (const auto* n = as<Load>(s)) load(*n, scope);
    for_each_body(s, [&](const Body& nested) { body(nested, repeats ? own : inner(scope)); });
  }
}

void Values::let(const Let& n) {
  if (uses_mutable(n.value)) return;
  const Expr value = resolved(n.value);
  if (value->size <= largest_value) known_[n.variable] = value;
}

void Values::load(const Load& n, int scope) {
  const Buffer* tensor = n.from.view.buffer.get();
  if (n.from.view.is_tile() || std::find(written_.begin(), written_.end(), tensor) != written_.end()) return;
  for (const Read& read : reads_) {
    if (!same(read.load->from, n.from)) continue;
    known_[n.variable] = variable(read.variable);
    return;
  }
  int deepest = 0;
  bool is_fixed = true;
  const auto look = [&](const Expr& e) {
    is_fixed &= !uses_mutable(e);
    for_each_variable(resolved(e), [&](const VariablePtr& v) {
      if (contains(deepest, scope_of(v))) deepest = scope_of(v);
    });
  };
  for (const Expr& e : coordinates(n.from)) look(e);
  for (const ViewDim& dim : n.from.view.dims)
    for (const Expr& limit : {dim.low, dim.high})
      if (limit) look(limit);
  if (!is_fixed) return;
  internal_assert(contains(deepest, scope), "what an index names is visible where it is used");
  define(n.variable, deepest);
  reads_.push_back({&n, n.variable});
}

bool Values::same(const Access& a, const Access& b) const {
  if (a.view.buffer != b.view.buffer || a.view.shape.size() != b.view.shape.size()) return false;
  const std::vector<Expr> at = coordinates(a), other = coordinates(b);
  const auto equal_or_none = [&](const Expr& x, const Expr& y) {
    return x && y ? equal(affine_of(x), affine_of(y)) : !x && !y;
  };
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!equal(a.view.shape[d], b.view.shape[d]) || !equal_or_none(at[d], other[d])) return false;
    const ViewDim &one = a.view.dims[d], &two = b.view.dims[d];
    if (!equal_or_none(one.low, two.low) || !equal_or_none(one.high, two.high)) return false;
  }
  return true;
}

Expr Values::resolved(const Expr& e) const { return substitute(e, known_); }

Affine Values::affine_of(const Expr& e) const { return affine(resolved(e)); }

int Values::scope_of(const VariablePtr& v) const {
  const auto found = scopes_.find(v.get());
  return found == scopes_.end() ? 0 : found->second;
}

bool Values::contains(int outer, int inner) const {
  while (inner > outer) inner = parents_[static_cast<std::size_t>(inner)];
  return inner == outer;
}

bool Values::outlive(const Affine& a, const Buffer* tile) const {
  const auto declared = declared_.find(tile);
  if (declared == declared_.end()) return false;
  bool all = true;
  for (const Affine::Term& term : a.terms)
    for_each_variable(term.atom, [&](const VariablePtr& v) {
      all &= v->kind != VariableKind::mutable_ && contains(scope_of(v), declared->second);
    });
  return all;
}

bool Values::is_inside(const VariablePtr& inner, const VariablePtr& outer) const {
  return contains(scope_of(outer), scope_of(inner));
}

namespace {

// The limits of an axis of tiles: element i is cut off unless low <= i < high, for those limits that exist.
struct Cut {
  std::optional<Affine> low, high;
};

// Where values that are cut off go.
class Flow {
 public:
  Flow(const Values& values, Cut cut) : values_(values), cut_(std::move(cut)) {}
  bool ends_in_drops(const Body& block, const BufferPtr& tile, int dim);

 private:
  void body(const Body& statements);
  void stmt(const Stmt& s);
  void moved(const View& from, const View& to);
  void multiplied(const Gemm& n);
  void reduced(const Reduce& n);
  void scanned(const Scan& n);
  void loaded(const Load& n);
  void computed(const VariablePtr& v, const Expr& value);
  void stored(const Access& to, const Expr& value);
  void loop(const For& n);

  void fail() { fails_ = true; }
  void spoil(const BufferPtr& tile, int dim);
  // The row of which the expression is computed; null if it is of none.
  const Variable* row_of(const Expr& e);
  void require_known(const Stmt& s);
  // The view's axis along which its tile is cut; −1: it is not.
  int cut_axis(const View& view);
  int dim_of(const View& view, int axis) const;
  bool drops(const View& to, std::size_t dim, const Affine& first) const;

  const Values& values_;
  const Cut cut_;
  std::unordered_map<const Buffer*, int> dims_;                // of tiles, along which they are cut
  std::unordered_map<const Variable*, const Variable*> rows_;  // of values: the index of their row
  std::unordered_map<const Variable*, VariablePtr> parallel_;  // indices
  bool fails_ = false, changed_ = false;
};

void Flow::spoil(const BufferPtr& tile, int dim) {
  if (dim < 0 || !tile->is_tile()) return fail();
  const auto [known, is_new] = dims_.emplace(tile.get(), dim);
  if (known->second != dim) return fail();
  if (!is_new) return;
  changed_ = true;
  for (const auto& limit : {cut_.low, cut_.high})
    if (limit && !values_.outlive(*limit, tile.get())) fail();
}

int Flow::cut_axis(const View& view) {
  const auto found = dims_.find(view.buffer.get());
  if (found == dims_.end()) return -1;
  // A reshaped tile of as many rows has the same rows.
  const bool has_rows =
      is_own_shape(view) || (found->second == 0 && is_constant(view.shape[0], view.buffer->extent(0)));
  const ViewDim* dim = has_rows ? &view.dims[static_cast<std::size_t>(found->second)] : nullptr;
  if (dim && dim->axis >= 0 && is_constant(dim->offset, 0)) return dim->axis;
  fail();
  return -1;
}

// The buffer's dimension that the axis shows from its first element on.
int Flow::dim_of(const View& view, int axis) const {
  for (std::size_t d = 0; is_own_shape(view) && d < view.dims.size(); ++d)
    if (view.dims[d].axis == axis && is_constant(view.dims[d].offset, 0)) return static_cast<int>(d);
  return -1;
}

// Whether the tensor's view ends no later, and begins no earlier, than what is cut off: `first` is where the
// tile's first element comes to be.
bool Flow::drops(const View& to, std::size_t dim, const Affine& first) const {
  const ViewDim& own = to.dims[dim];
  const auto beyond = [&](const Expr& limit, const Affine& cut) -> std::optional<std::int64_t> {
    const auto from_first = limit ? difference(values_.affine_of(limit), first) : std::nullopt;
    const auto distance = from_first ? difference(*from_first, cut) : std::nullopt;
    return distance && distance->is_constant() ? std::optional(distance->constant) : std::nullopt;
  };
  if (cut_.low) {
    const auto distance = beyond(own.low, *cut_.low);
    if (!distance || *distance < 0) return false;
  }
  if (!cut_.high) return true;
  const auto slice = beyond(own.high, *cut_.high), all = beyond(to.shape[dim], *cut_.high);
  return (slice && *slice <= 0) || (all && *all <= 0);
}

void Flow::moved(const View& from, const View& to) {
  const int axis = cut_axis(from);
  if (axis < 0) return;
  if (to.is_tile()) return spoil(to.buffer, dim_of(to, axis));
  for (std::size_t d = 0; d < to.dims.size(); ++d)
    if (to.dims[d].axis == axis && drops(to, d, values_.affine_of(to.dims[d].offset))) return;
  fail();
}

void Flow::multiplied(const Gemm& n) {
  const int a = cut_axis(n.a), b = cut_axis(n.b);
  const int metadata = n.metadata ? cut_axis(*n.metadata) : -1;
  if (a == 1 || b == 0 || metadata == 1) return fail();
  if (a == 0 || metadata == 0) spoil(n.c.buffer, dim_of(n.c, 0));
  if (b == 1) spoil(n.c.buffer, dim_of(n.c, 1));
}

void Flow::reduced(const Reduce& n) {
  const int axis = cut_axis(n.from);
  if (axis < 0) return;
  if (axis == n.dim) return fail();
  spoil(n.to.buffer, dim_of(n.to, axis > n.dim ? axis - 1 : axis));
}

void Flow::scanned(const Scan& n) {
  const int axis = cut_axis(n.from);
  if (n.starts && cut_axis(*n.starts) >= 0) return fail();
  if (axis < 0) return;
  if (axis == n.dim) return fail();
  spoil(n.to.buffer, dim_of(n.to, axis));
}

const Variable* Flow::row_of(const Expr& e) {
  const Variable* row = nullptr;
  for_each_variable(e, [&](const VariablePtr& v) {
    const auto found = rows_.find(v.get());
    if (found == rows_.end()) return;
    if (row && row != found->second) fail();
    row = found->second;
  });
  return row;
}

void Flow::loaded(const Load& n) {
  const auto found = dims_.find(n.from.view.buffer.get());
  if (found == dims_.end()) return;
  if (!is_own_shape(n.from.view)) return fail();
  const Expr at = coordinates(n.from)[static_cast<std::size_t>(found->second)];
  if (at->op != Op::variable || !parallel_.contains(at->variable.get())) return fail();
  changed_ |= rows_.emplace(n.variable.get(), at->variable.get()).second;
}

void Flow::computed(const VariablePtr& v, const Expr& value) {
  const Variable* row = row_of(value);
  if (!row) return;
  if (!values_.is_inside(v, parallel_.at(row))) return fail();
  const auto [known, is_new] = rows_.emplace(v.get(), row);
  changed_ |= is_new;
  if (known->second != row) fail();
}

void Flow::stored(const Access& to, const Expr& value) {
  const Variable* row = row_of(value);
  if (!row) return;
  const VariablePtr& index = parallel_.at(row);
  const std::vector<Expr> at = coordinates(to);
  for (std::size_t d = 0; d < at.size(); ++d) {
    const auto first = difference(values_.affine_of(at[d]), affine(variable(index)));
    if (!first) continue;
    const bool is_tile = to.view.is_tile() && is_own_shape(to.view);
    if (is_tile && first->is_constant() && first->constant == 0)
      return spoil(to.view.buffer, static_cast<int>(d));
    const bool is_apart = std::none_of(first->terms.begin(), first->terms.end(),
                                       [&](const Affine::Term& t) { return uses(t.atom, index); });
    if (!to.view.is_tile() && is_apart && drops(to.view, d, *first)) return;
  }
  fail();
}

// What decides, or says where, is not of a row that is cut off.
void Flow::require_known(const Stmt& s) {
  const auto known = [&](const Expr& e) {
    if (row_of(e)) fail();
  };
  if (as<Let>(s) || as<DeclareVar>(s) || as<Assign>(s)) return;
  const auto* store = as<Store>(s);
  const auto* atomic = as<Atomic>(s);
  if (!store && !atomic) return for_each_expr(s, known);
  const Access& to = store ? store->to : atomic->to;
  for_each_expr(to.view, known);
  for (const Expr& e : to.index) known(e);
}

void Flow::loop(const For& n) {
  if (n.kind == LoopKind::parallel)
    for (const VariablePtr& v : n.index) parallel_.emplace(v.get(), v);
  body(n.body);
}

void Flow::stmt(const Stmt& s) {
  require_known(s);
  if (const auto* n = as<Copy>(s)) return moved(n->from, n->to);
  if (const auto* n = as<Gemm>(s)) return multiplied(*n);
  if (const auto* n = as<Reduce>(s)) return reduced(*n);
  if (const auto* n = as<Scan>(s)) return scanned(*n);
  if (const auto* n = as<Accumulate>(s)) return moved(n->tile, n->to);
  if (const auto* n = as<Load>(s)) return loaded(*n);
  if (const auto* n = as<Let>(s)) return computed(n->variable, n->value);
  if (const auto* n = as<DeclareVar>(s)) return computed(n->variable, n->value);
  if (const auto* n = as<Assign>(s)) return computed(n->variable, n->value);
  if (const auto* n = as<Store>(s)) return stored(n->to, n->value);
  if (const auto* n = as<Atomic>(s)) return stored(n->to, n->value);
  if (const auto* n = as<For>(s)) return loop(*n);
  if (const auto* n = as<Gather>(s); n && dims_.contains(n->from.buffer.get())) fail();
  for_each_body(s, [&](const Body& inner) { body(inner); });
}

void Flow::body(const Body& statements) {
  for (const Stmt& s : statements) stmt(s);
}

bool Flow::ends_in_drops(const Body& block, const BufferPtr& tile, int dim) {
  spoil(tile, dim);
  while (changed_ && !fails_) {
    changed_ = false;
    body(block);
  }
  return !fails_;
}

}  // namespace

bool drops_rows_outside(const Body& block, const Values& values, const Copy& copy) {
  const View &from = copy.from, &to = copy.to;
  if (!to.is_tile() || !is_own_shape(to) || to.rank() != 2 || from.dims.size() < 2) return false;
  const std::size_t rows = from.dims.size() - 2;
  const ViewDim &dim = from.dims[rows], &own = to.dims[0];
  if (dim.axis != 0 || own.axis != 0) return false;
  const auto first = difference(values.affine_of(dim.offset), values.affine_of(own.offset));
  const auto end = first ? difference(values.affine_of(from.shape[rows]), *first) : std::nullopt;
  return end && Flow(values, {.low = {}, .high = *end}).ends_in_drops(block, to.buffer, 0);
}

bool drops_what_is_cut(const Body& block, const Values& values, const Copy& copy) {
  const View &from = copy.from, &to = copy.to;
  if (!to.is_tile() || !is_own_shape(to)) return false;
  for (std::size_t d = 0; d < from.dims.size(); ++d) {
    const ViewDim& dim = from.dims[d];
    if (dim.axis < 0) continue;
    Cut cut;
    const auto own = std::find_if(to.dims.begin(), to.dims.end(),
                                  [&](const ViewDim& other) { return other.axis == dim.axis; });
    if (own == to.dims.end()) return false;
    const auto first = difference(values.affine_of(dim.offset), values.affine_of(own->offset));
    if (!first) return false;
    if (dim.low && !is_constant(dim.low, 0)) cut.low = difference(values.affine_of(dim.low), *first);
    if (dim.high && !equal(dim.high, from.shape[d]))
      cut.high = difference(values.affine_of(dim.high), *first);
    if (!cut.low && !cut.high) continue;
    if (!Flow(values, cut).ends_in_drops(block, to.buffer, static_cast<int>(own - to.dims.begin())))
      return false;
  }
  return true;
}

}  // namespace tegula::ir
