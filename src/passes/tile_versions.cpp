#include "passes/tile_versions.hpp"

#include <algorithm>

#include "ir/ir.hpp"
#include "ir/visit.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

using Indices = std::vector<VariablePtr>;

// Whether a loop over all elements of the tile accesses its own one.
bool is_identity(const Access& access, const Indices& index) {
  if (!is_whole(access.view) || access.index.size() != index.size()) return false;
  for (std::size_t i = 0; i < index.size(); ++i) {
    const bool is_single = is_constant(access.view.buffer->shape[i], 1) && is_constant(access.index[i], 0);
    if (!is_variable(access.index[i], index[i]) && !is_single) return false;
  }
  return true;
}

const For* loop_over(const Stmt& s, const Buffer& tile) {
  const auto* loop = as<For>(s);
  const bool covers =
      loop && loop->kind == LoopKind::parallel && !loop->index.empty() && equal(loop->end, tile.shape);
  return covers ? loop : nullptr;
}

// Whether neighbouring iterations of the loop read neighbours in a row of a tile with its own shape.
bool reads_along_rows(const Access& access, const VariablePtr& lane) {
  if (!is_own_shape(access.view)) return false;
  const std::vector<Expr> at = coordinates(access);
  for (std::size_t d = 0; d + 1 < at.size(); ++d)
    if (uses(at[d], lane)) return false;
  const Expr& last = at.back();
  const auto is_lane = [&](const Expr& e) { return is_variable(e, lane); };
  if (is_lane(last)) return true;
  return last->op == Op::add &&
         (is_lane(last->args[0]) ? !uses(last->args[1], lane)
                                 : is_lane(last->args[1]) && !uses(last->args[0], lane));
}

std::optional<Source> source_of_copy(const Copy& copy, const BufferPtr& tile, const Facts& facts,
                                     const Loc& at) {
  const bool fills = copy.to.buffer == tile && is_whole(copy.to) && !copy.from.is_tile();
  if (!fills || !is_along_rows(copy.from)) return std::nullopt;
  Source source{{}, {copy.from, {}}};
  for (int axis = 0; axis < tile->rank(); ++axis) {
    source.index.push_back(new_variable("i", i32, VariableKind::index, at));
    source.from.index.push_back(variable(source.index.back(), at));
  }
  if (is_zero(copy.fill)) return source;
  const auto begins_inside = [&](const ViewDim& d) { return bounds(d.offset, facts).low >= 0; };
  if (!std::all_of(copy.from.dims.begin(), copy.from.dims.end(), begins_inside)) return std::nullopt;
  source.exists = existence(copy.from, source.from.index, at);
  source.fill = copy.fill;
  return source.exists ? std::optional(source) : std::nullopt;
}

// Of a loop that does nothing but copy.
std::optional<Source> source_of_loop(const For& loop, const BufferPtr& tile) {
  if (loop.body.size() != 2) return std::nullopt;
  const auto* load = as<Load>(loop.body[0]);
  const auto* store = as<Store>(loop.body[1]);
  if (!load || !store || store->to.view.buffer != tile || !is_identity(store->to, loop.index))
    return std::nullopt;
  const Expr& value = store->value;
  const bool same = is_variable(value, load->variable) ||
                    (value->op == Op::cast && is_variable(value->args[0], load->variable));
  const View& view = load->from.view;
  if (!same || load->from.view.buffer == tile || !is_along_rows(view)) return std::nullopt;
  if (load->from.index.empty() || !is_variable(load->from.index.back(), loop.index.back()))
    return std::nullopt;
  return Source{loop.index, load->from};
}

class Versions {
 public:
  Versions(const Body& body, BufferPtr tile, const Facts& facts)
      : body_(body), tile_(std::move(tile)), facts_(facts) {}

  std::vector<Version> found(const std::vector<std::size_t>& mentions) {
    versions_.push_back({});
    versions_.back().opaque = true;  // undefined contents
    for (const std::size_t at : mentions) visit(at);
    return std::move(versions_);
  }

 private:
  void begin(std::size_t at, std::optional<Source> source, bool by_loop) {
    Version version;
    version.defined = at;
    version.source = std::move(source);
    version.by_loop = by_loop;
    versions_.push_back(std::move(version));
  }
  void read(std::size_t at) { versions_.back().readers.push_back(at); }

  void visit(std::size_t at) {
    const Stmt& s = body_[at];
    if (const auto* copy = as<Copy>(s)) return visit_copy(*copy, at);
    if (const auto* reduce = as<Reduce>(s);
        reduce && reduce->to.buffer != tile_ && is_whole(reduce->from) && reduce->dim == tile_->rank() - 1)
      return read(at);
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) return visit_loop(*loop, at);
    versions_.back().opaque = true;
  }

  void visit_copy(const Copy& copy, std::size_t at) {
    if (auto source = source_of_copy(copy, tile_, facts_, body_[at]->at))
      return begin(at, std::move(source), false);
    if (copy.from.buffer == tile_ && is_whole(copy.from) && !copy.to.is_tile())
      versions_.back().copies.push_back(at);
    else
      versions_.back().opaque = true;
  }

  // The statement of the loop that replaces its own element, if all that it reads of the tile is read before
  // and is that element.
  void visit_loop(const For& loop, std::size_t at) {
    bool along_rows = true, own = true, stores = false, after = false;
    std::size_t top_level = 0;
    for (const Stmt& s : loop.body) {
      const auto* store = as<Store>(s);
      if (store && store->to.view.buffer == tile_) top_level += is_identity(store->to, loop.index);
    }
    bool reads = false;
    for_each_stmt(loop.body, [&](const Stmt& s) {
      if (const auto* load = as<Load>(s); load && load->from.view.buffer == tile_) {
        reads = true;
        after |= stores;
        along_rows = along_rows && reads_along_rows(load->from, loop.index.back());
        own = own && is_identity(load->from, loop.index);
        return;
      }
      for_each_view(s, [&](const View& view) {
        if (view.buffer != tile_) return;
        own = own && as<Store>(s) && !stores;
        along_rows = false;
        stores = true;
      });
    });
    const bool replaces = stores && own && !after && top_level == 1 && loop_over(body_[at], *tile_);
    if (stores && !replaces) {
      versions_.back().opaque = true;
      return;
    }
    if (reads && !(replaces || along_rows)) versions_.back().opaque = true;
    if (reads) read(at);
    if (replaces) begin(at, source_of_loop(loop, tile_), true);
  }

  const Body& body_;
  BufferPtr tile_;
  const Facts& facts_;
  std::vector<Version> versions_;
};

}  // namespace

Expr existence(const View& view, const std::vector<Expr>& index, const Loc& at) {
  Expr others, count;
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    const ViewDim& dim = view.dims[d];
    const Expr& extent = view.shape[d];
    if (dim.low || dim.high || extent->type != i32 || dim.offset->type != i32) return nullptr;
    const Expr rest = make(Op::sub, i32, {extent, dim.offset}, at);
    if (d + 1 == view.dims.size()) {
      count = rest;
      continue;
    }
    const Expr own = dim.axis < 0 ? int32(0, at) : index[static_cast<std::size_t>(dim.axis)];
    const Expr inside = make(Op::lt, boolean, {own, rest}, at);
    others = others ? make(Op::logical_and, boolean, {others, inside}, at) : inside;
  }
  if (others) count = make(Op::select, i32, {others, count, int32(0, at)}, at);
  return make(Op::lt, boolean, {index.back(), count}, at);
}

bool is_along_rows(const View& view) { return view.rank() > 0 && view.dims.back().axis == view.rank() - 1; }

std::vector<Version> versions_of(const Body& body, const BufferPtr& tile,
                                 const std::vector<std::size_t>& mentions, const Facts& facts) {
  return Versions(body, tile, facts).found(mentions);
}

}  // namespace tegula::passes
