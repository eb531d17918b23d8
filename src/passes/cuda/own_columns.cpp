#include "passes/cuda/own_columns.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

BufferPtr narrowed(const Buffer& whole, std::int64_t columns) {
  Buffer result = whole;
  result.shape.back() = constant(whole.shape.back()->held(), columns, whole.at);
  return std::make_shared<const Buffer>(std::move(result));
}

const Access* element_of(const Stmt& s, const BufferPtr& tile) {
  const auto* load = as<Load>(s);
  const auto* store = as<Store>(s);
  const Access* access = load ? &load->from : store ? &store->to : nullptr;
  return access && access->view.buffer == tile ? access : nullptr;
}

// Whether the view shows all columns of its tile, so that they can be divided.
bool is_whole_along_columns(const View& b) {
  const auto is_columns = [](const ViewDim& dim) { return dim.axis == 1; };
  const auto own = std::find_if(b.dims.begin(), b.dims.end(), is_columns);
  if (own == b.dims.end() || !is_constant(own->offset, 0) || own->low || own->high) return false;
  return equal(b.shape[static_cast<std::size_t>(own - b.dims.begin())], b.extents[1]);
}

}  // namespace

View part_of(const View& view, int axis, const PartOfAxis& part) {
  View result = view;
  const std::int64_t own = view.extent(axis) / part.count;
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    if (view.dims[d].axis != axis) continue;
    const auto at = static_cast<std::ptrdiff_t>(d);
    result.shape[d] = int32(own);
    result.shape.insert(result.shape.begin() + at, int32(part.count));
    result.dims.insert(result.dims.begin() + at, ViewDim{part.number, nullptr, nullptr, -1});
  }
  result.extents[static_cast<std::size_t>(axis)] = int32(own);
  return result;
}

OwnColumns::OwnColumns(BufferPtr whole, VariablePtr group, int groups)
    : whole_(std::move(whole)),
      group_(std::move(group)),
      groups_(groups),
      columns_(whole_->extent(1) / groups),
      own_(narrowed(*whole_, columns_)) {}

bool OwnColumns::touches(const Stmt& s) const {
  if (const auto* declared = as<Declare>(s)) return declared->tile == whole_;
  const Effects all = all_effects(s);
  return std::any_of(all.regions.begin(), all.regions.end(),
                     [&](const Region& r) { return r.view->buffer == whole_; });
}

std::optional<Stmt> OwnColumns::divided(const Stmt& s) const {
  if (as<Declare>(s)) return statement(Declare{own_}, s->at);
  if (const auto* gemm = as<Gemm>(s)) {
    const bool divisible = is_whole(gemm->c) && gemm->a.buffer != whole_ && is_whole_along_columns(gemm->b);
    if (!divisible) return std::nullopt;
    Gemm own = *gemm;
    own.b = part_of(gemm->b, 1, {variable(group_), groups_});
    own.c = ir::whole(own_);
    return statement(std::move(own), s->at);
  }
  const auto* n = as<For>(s);
  return n && n->kind == LoopKind::parallel ? loop(*n, s) : std::nullopt;
}

// The index that is the column in all accesses to the fragment.
std::optional<std::size_t> OwnColumns::column_axis(const For& n) const {
  std::optional<std::size_t> result;
  bool good = true;
  for_each_stmt(n.body, [&](const Stmt& s) {
    const Access* access = element_of(s, whole_);
    for_each_view(s, [&](const View& view) { good &= view.buffer != whole_ || access != nullptr; });
    if (!access) return;
    good &= is_whole(access->view);
    for (std::size_t axis = 0; good && axis < n.index.size(); ++axis) {
      if (!is_variable(access->index[1], n.index[axis])) continue;
      good &= !uses(access->index[0], n.index[axis]) && (!result || *result == axis);
      result = axis;
    }
  });
  if (!good || !result || !is_constant(n.end[*result], whole_->extent(1))) return std::nullopt;
  return result;
}

Stmt OwnColumns::with_own(const Stmt& s, const Expr& column) const {
  if (!element_of(s, whole_)) return s;
  const auto moved = [&](Access access) {
    access.view = ir::whole(own_);
    access.index[1] = column;
    return access;
  };
  if (const auto* load = as<Load>(s)) return statement(Load{load->variable, moved(load->from)}, s->at);
  const auto& store = *as<Store>(s);
  return statement(Store{moved(store.to), store.value}, s->at);
}

std::optional<Stmt> OwnColumns::loop(const For& n, const Stmt& s) const {
  const auto axis = column_axis(n);
  if (!axis) return std::nullopt;
  const VariablePtr& index = n.index[*axis];
  const VariablePtr own = new_variable(index->name.c_str(), index->type, VariableKind::index, s->at);
  const Expr column = variable(own, s->at), group = as_stored(variable(group_, s->at), index->type);
  const Expr first = make(Op::mul, index->type, {group, constant(index->type, columns_)}, s->at);
  For result = n;
  result.index[*axis] = own;
  result.end[*axis] = constant(n.end[*axis]->held(), columns_, s->at);
  const Body body = substitute(n.body, {{index, make(Op::add, index->type, {column, first}, s->at)}});
  result.body = map_body(body, [&](const Stmt& inner) { return Body{with_own(inner, column)}; });
  return statement(std::move(result), s->at);
}

}  // namespace tegula::passes
