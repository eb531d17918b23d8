#include "passes/copies_in_loops.hpp"

#include <algorithm>
#include <optional>

#include "ir/effects.hpp"
#include "ir/ir.hpp"
#include "ir/representable.hpp"
#include "ir/visit.hpp"
#include "ir/zero.hpp"
#include "passes/by_any_name.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int most_reads = 4;  // of a tensor in place of a tile: each converts its elements again

using Indices = std::vector<VariablePtr>;

// What the elements of a tile are copied from: that at `index` from `from`.
struct Source {
  Indices index;
  Access from;
};

// The contents of a tile from one statement that replaces all of them to the next.
struct Version {
  std::size_t defined = 0;
  std::optional<Source> source;
  bool by_loop = false;  // the statement computes them
  bool opaque = false;   // others than loops, reductions and copies to tensors touch them
  int reads = 0;         // statements that read them
  std::vector<std::size_t> readers, copies;  // loops and reductions; copies to tensors
};

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
  const bool covers = loop && loop->kind == LoopKind::parallel && !loop->index.empty() && equal(loop->end, tile.shape);
  return covers ? loop : nullptr;
}

// Whether elements along the last axis of the view are neighbours along the last dimension of the buffer.
bool is_along_rows(const View& view) { return view.rank() > 0 && view.dims.back().axis == view.rank() - 1; }

// Whether neighbouring iterations of the loop read neighbours in a row of a tile with its own shape.
bool reads_along_rows(const Access& access, const VariablePtr& lane) {
  if (!is_own_shape(access.view)) return false;
  const std::vector<Expr> at = coordinates(access);
  for (std::size_t d = 0; d + 1 < at.size(); ++d)
    if (uses(at[d], lane)) return false;
  const Expr& last = at.back();
  const auto is_lane = [&](const Expr& e) { return is_variable(e, lane); };
  if (is_lane(last)) return true;
  return last->op == Op::add && (is_lane(last->args[0]) ? !uses(last->args[1], lane)
                                                        : is_lane(last->args[1]) && !uses(last->args[0], lane));
}

std::optional<Source> source_of_copy(const Copy& copy, const BufferPtr& tile, const Loc& at) {
  const bool fills = copy.to.buffer == tile && is_whole(copy.to) && !copy.from.is_tile() && is_zero(copy.fill);
  if (!fills || !is_along_rows(copy.from)) return std::nullopt;
  Source source{{}, {copy.from, {}}};
  for (int axis = 0; axis < tile->rank(); ++axis) {
    source.index.push_back(new_variable("i", i32, VariableKind::index, at));
    source.from.index.push_back(variable(source.index.back(), at));
  }
  return source;
}

// Of a loop that does nothing but copy.
std::optional<Source> source_of_loop(const For& loop, const BufferPtr& tile) {
  if (loop.body.size() != 2) return std::nullopt;
  const auto* load = as<Load>(loop.body[0]);
  const auto* store = as<Store>(loop.body[1]);
  if (!load || !store || store->to.view.buffer != tile || !is_identity(store->to, loop.index)) return std::nullopt;
  const Expr& value = store->value;
  const bool same = is_variable(value, load->variable) ||
                    (value->op == Op::cast && is_variable(value->args[0], load->variable));
  const View& view = load->from.view;
  if (!same || load->from.view.buffer == tile || !is_along_rows(view)) return std::nullopt;
  if (load->from.index.empty() || !is_variable(load->from.index.back(), loop.index.back())) return std::nullopt;
  return Source{loop.index, load->from};
}

class Versions {
 public:
  Versions(const Body& body, BufferPtr tile) : body_(body), tile_(std::move(tile)) {}

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
  void read(std::size_t at) {
    ++versions_.back().reads;
    versions_.back().readers.push_back(at);
  }

  void visit(std::size_t at) {
    const Stmt& s = body_[at];
    if (const auto* copy = as<Copy>(s)) return visit_copy(*copy, at);
    if (const auto* reduce = as<Reduce>(s); reduce && reduce->to.buffer != tile_ && is_whole(reduce->from) &&
                                            reduce->dim == tile_->rank() - 1)
      return read(at);
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) return visit_loop(*loop, at);
    versions_.back().opaque = true;
  }

  void visit_copy(const Copy& copy, std::size_t at) {
    if (auto source = source_of_copy(copy, tile_, body_[at]->at)) return begin(at, std::move(source), false);
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
  std::vector<Version> versions_;
};

// The element of the tile that the source gives, in place of a load.
Body loaded(const VariablePtr& to, const BufferPtr& tile, const Source& source, const Substitution& by,
            const Loc& at) {
  const DType type = source.from.view.buffer->type;
  const bool stays = contains(tile->type, type) && compute_type(type) == compute_type(tile->type);
  if (stays) return substitute(Body{statement(Load{to, source.from}, at)}, by);
  const VariablePtr x = new_variable("x", compute_type(type), VariableKind::let, at);
  Body result{statement(Load{x, source.from}, at)};
  result.push_back(statement(Let{to, make(Op::cast, tile->type, {variable(x, at)}, at)}, at));
  return substitute(result, by);
}

// Reads of the tile become those of its source.
Body with_source(const Body& body, const BufferPtr& tile, const Source& source) {
  return map_body(body, [&](const Stmt& s) -> Body {
    const auto* load = as<Load>(s);
    if (!load || load->from.view.buffer != tile) return {s};
    const std::vector<Expr> at = coordinates(load->from);
    Substitution by;
    for (std::size_t i = 0; i < at.size(); ++i) by.emplace(source.index[i], at[i]);
    return loaded(load->variable, tile, source, by, s->at);
  });
}

class Copies {
 public:
  Copies(Body body, const Tensors& written) : body_(std::move(body)), written_(written) {}

  Body result() {
    while (read_sources()) {
    }
    store_in_loops();
    return std::move(body_);
  }

 private:
  using Mentions = std::unordered_map<const Buffer*, std::vector<std::size_t>>;

  Mentions mentions() const {
    Mentions result;
    for (std::size_t i = 0; i < body_.size(); ++i)
      for_each_stmt(Body{body_[i]}, [&](const Stmt& s) {
        for_each_view(s, [&](const View& view) {
          std::vector<std::size_t>& all = result[view.buffer.get()];
          if (view.is_tile() && (all.empty() || all.back() != i)) all.push_back(i);
        });
      });
    return result;
  }
  std::vector<BufferPtr> tiles() const {
    std::vector<BufferPtr> result;
    for (const Stmt& s : body_)
      if (const auto* declare = as<Declare>(s); declare && declare->tile->rank() > 0) result.push_back(declare->tile);
    return result;
  }

  // Whether what is read there is the same until the last reader.
  bool stays(const Version& version) const {
    const View& view = version.source->from.view;
    bool same = true;
    const auto constant = [&](const Expr& e) {
      if (e) for_each_variable(e, [&](const VariablePtr& v) { same = same && v->kind != VariableKind::mutable_; });
    };
    for_each_expr(view, constant);
    for (const Expr& e : version.source->from.index) constant(e);
    if (!view.is_tile()) return same && !written_.contains(view.buffer.get());
    for (std::size_t i = version.defined + 1; same && i <= version.readers.back(); ++i)
      same = !all_effects(body_[i]).writes(view.buffer);
    return same;
  }

  bool is_read_in_place(const Version& version, const BufferPtr& tile) const {
    if (!version.source || version.opaque || !version.copies.empty() || version.readers.empty()) return false;
    // Reductions read what a loop gives them.
    const auto is_reduction = [&](std::size_t i) { return as<Reduce>(body_[i]) != nullptr; };
    if (version.by_loop && std::all_of(version.readers.begin(), version.readers.end(), is_reduction)) return false;
    const DType from = version.source->from.view.buffer->type;
    const bool is_table = from.is_floating() && from.bits() < 16;  // converting takes as long as computing
    if (version.reads > (is_table ? 1 : most_reads) || tile->type.is_boolean() || from.is_boolean()) return false;
    return stays(version);
  }

  // A reduction reads a tile, which a loop in front of it fills.
  Body reduced(const Stmt& s, const BufferPtr& tile, const Source& source) const {
    Reduce reduce = *as<Reduce>(s);
    const BufferPtr own = new_tile("row", tile->space, tile->type, tile->shape, s->at);
    For loop{LoopKind::parallel, {}, {}, tile->shape, 0, {}};
    Access to{whole(own), {}};
    Substitution by;
    for (const VariablePtr& index : source.index) {
      loop.index.push_back(new_variable("i", i32, VariableKind::index, s->at));
      loop.begin.push_back(int32(0, s->at));
      to.index.push_back(variable(loop.index.back(), s->at));
      by.emplace(index, to.index.back());
    }
    const VariablePtr x = new_variable("x", compute_type(tile->type), VariableKind::let, s->at);
    loop.body = loaded(x, tile, source, by, s->at);
    loop.body.push_back(statement(Store{to, variable(x, s->at)}, s->at));
    reduce.from = whole(own);
    return {statement(Declare{own}, s->at), statement(std::move(loop), s->at), statement(std::move(reduce), s->at)};
  }

  // Lets the readers of one version read its source; whether there was one.
  bool read_sources() {
    const Mentions all = mentions();
    for (const BufferPtr& tile : tiles()) {
      const auto found = all.find(tile.get());
      if (found == all.end()) continue;
      for (const Version& version : Versions(body_, tile).found(found->second))
        if (is_read_in_place(version, tile)) {
          read_source(version, tile);
          return true;
        }
    }
    return false;
  }

  void read_source(const Version& version, const BufferPtr& tile) {
    Body result;
    for (std::size_t i = 0; i < body_.size(); ++i) {
      if (i == version.defined) continue;
      const bool reads = std::find(version.readers.begin(), version.readers.end(), i) != version.readers.end();
      Body own{body_[i]};
      if (reads) own = as<Reduce>(body_[i]) ? reduced(body_[i], tile, *version.source)
                                            : with_source(own, tile, *version.source);
      result.insert(result.end(), own.begin(), own.end());
    }
    body_ = std::move(result);
  }

  // Whether nothing but declarations, values and copies that became loops stands between the loop and the copy.
  bool follows(const Version& version, std::size_t copy) const {
    for (std::size_t i = version.defined + 1; i < copy; ++i)
      if (!as<Declare>(body_[i]) && !as<Let>(body_[i]) && !stored_.contains(body_[i].get()) && !loop_beside(i, version))
        return false;
    return true;
  }
  bool loop_beside(std::size_t i, const Version& version) const {
    const auto* loop = as<For>(body_[i]);
    const auto* first = as<For>(body_[version.defined]);
    return loop && loop->kind == LoopKind::parallel && equal(loop->end, first->end);
  }

  Stmt stored(const Copy& copy, const Loc& at) const {
    const BufferPtr& tile = copy.from.buffer;
    For loop{LoopKind::parallel, {}, {}, tile->shape, 0, {}};
    std::vector<Expr> index;
    for (int axis = 0; axis < tile->rank(); ++axis) {
      loop.index.push_back(new_variable("i", i32, VariableKind::index, at));
      loop.begin.push_back(int32(0, at));
      index.push_back(variable(loop.index.back(), at));
    }
    const VariablePtr y = new_variable("y", compute_type(tile->type), VariableKind::let, at);
    loop.body = {statement(Load{y, {copy.from, index}}, at),
                 statement(Store{{copy.to, index}, as_stored(variable(y, at), copy.to.buffer->type)}, at)};
    return statement(std::move(loop), at);
  }

  void store_in_loops() {
    const Mentions all = mentions();
    for (const BufferPtr& tile : tiles()) {
      const auto found = all.find(tile.get());
      if (found == all.end()) continue;
      const std::vector<Version> versions = Versions(body_, tile).found(found->second);
      for (const Version& version : versions) store_in_loop(version, tile, versions.size() > 2);
    }
    Body result;
    for (const Stmt& s : body_) {
      if (const auto own = declared_.find(s.get()); own != declared_.end())
        result.push_back(statement(Declare{own->second}, s->at));
      result.push_back(s);
    }
    body_ = std::move(result);
  }

  void store_in_loop(const Version& version, const BufferPtr& tile, bool has_others) {
    if (!version.by_loop || version.copies.empty() || tile->type.is_boolean()) return;
    for (const std::size_t at : version.copies) {
      const Copy& copy = *as<Copy>(body_[at]);
      if (!is_along_rows(copy.to) || !follows(version, at)) return;
    }
    for (const std::size_t at : version.copies) {
      body_[at] = stored(*as<Copy>(body_[at]), body_[at]->at);
      stored_.insert(body_[at].get());
    }
    if (!has_others || version.opaque || !version.readers.empty()) return;
    // A tile of its own, that only loops beside each other access.
    const BufferPtr own = new_tile(tile->name.c_str(), tile->space, tile->type, tile->shape, tile->at);
    const BufferRenaming by{{tile, own}};
    Stmt& first = body_[version.defined];
    For loop = *as<For>(first);
    for (Stmt& s : loop.body)
      if (const auto* store = as<Store>(s); store && store->to.view.buffer == tile) s = rename_buffers(Body{s}, by)[0];
    first = statement(std::move(loop), first->at);
    declared_.emplace(first.get(), own);
    for (const std::size_t at : version.copies) {
      stored_.erase(body_[at].get());
      body_[at] = rename_buffers(Body{body_[at]}, by)[0];
      stored_.insert(body_[at].get());
    }
  }

  Body body_;
  const Tensors& written_;
  std::unordered_set<const StmtNode*> stored_;                       // copies that have become loops
  std::unordered_map<const StmtNode*, BufferPtr> declared_;  // in front of statements
};

Body in_loops(const Body& body, const Tensors& written) {
  Mapping nested;
  nested.body = [&](const Body& inner) { return in_loops(inner, written); };
  Body result;
  for (const Stmt& s : body) {
    const auto* loop = as<For>(s);
    result.push_back(loop && loop->kind == LoopKind::parallel ? s : map(s, nested));
  }
  return Copies(std::move(result), written).result();
}

}  // namespace

Kernel copies_in_loops(const Kernel& kernel) {
  return map_grids(kernel, [&](const Grid& grid) {
    const Effects all = all_effects(grid.body);
    if (std::any_of(all.statements.begin(), all.statements.end(), [](const Stmt& s) { return as<Gemm>(s); }))
      return grid.body;
    Tensors written;
    for (const Region& region : all.regions)
      if (is_tensor_write(region)) written.insert(region.view->buffer.get());
    return in_loops(grid.body, by_any_name(std::move(written), kernel));
  });
}

}  // namespace tegula::passes
