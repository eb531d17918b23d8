#include "passes/copies_in_loops.hpp"

#include <algorithm>
#include <map>

#include "ir/effects.hpp"
#include "ir/ir.hpp"
#include "ir/representable.hpp"
#include "ir/visit.hpp"
#include "passes/by_any_name.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/tile_versions.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::size_t most_reads = 4;  // of a tensor in place of a tile: each converts its elements again

// The element of the tile that the source gives, in place of a load.
Body loaded(const VariablePtr& to, const BufferPtr& tile, const Source& source, const Substitution& by,
            const Loc& at) {
  const DType type = source.from.view.buffer->type;
  const bool stays = contains(tile->type, type) && compute_type(type) == compute_type(tile->type);
  if (source.fill) {
    const VariablePtr x = new_variable("x", compute_type(type), VariableKind::let, at);
    const Expr own = stays ? variable(x, at) : make(Op::cast, tile->type, {variable(x, at)}, at);
    const Expr fill =
        source.fill->type == tile->type ? source.fill : make(Op::cast, tile->type, {source.fill}, at);
    const Expr value = make(Op::select, own->held(), {source.exists, own, fill}, at);
    return substitute(Body{statement(Load{x, source.from}, at), statement(Let{to, value}, at)}, by);
  }
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
  Copies(Body body, const Tensors& written, const Facts& facts)
      : body_(std::move(body)), written_(written), facts_(facts) {}

  Body result() {
    while (read_sources()) {}
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
      if (const auto* declare = as<Declare>(s); declare && declare->tile->rank() > 0)
        result.push_back(declare->tile);
    return result;
  }

  // Whether what is read there is the same until the last reader.
  bool stays(const Version& version) const {
    const View& view = version.source->from.view;
    bool same = true;
    const auto constant = [&](const Expr& e) {
      if (e)
        for_each_variable(e, [&](const VariablePtr& v) { same = same && v->kind != VariableKind::mutable_; });
    };
    for_each_expr(view, constant);
    for (const Expr& e : version.source->from.index) constant(e);
    constant(version.source->exists);
    constant(version.source->fill);
    if (!view.is_tile()) return same && !written_.contains(view.buffer.get());
    for (std::size_t i = version.defined + 1; same && i <= version.readers.back(); ++i)
      same = !all_effects(body_[i]).writes(view.buffer);
    return same;
  }

  // How often an element is read: by each reader, and by one that looks at neighbours once for each.
  std::size_t reads(const Version& version, const BufferPtr& tile) const {
    std::size_t count = 0;
    for (const std::size_t reader : version.readers) {
      std::vector<std::vector<Expr>> places;
      for_each_stmt(Body{body_[reader]}, [&](const Stmt& s) {
        const auto* load = as<Load>(s);
        if (load == nullptr || load->from.view.buffer != tile) return;
        const std::vector<Expr> at = coordinates(load->from);
        if (std::none_of(places.begin(), places.end(), [&](const auto& p) { return equal(p, at); }))
          places.push_back(at);
      });
      count += std::max<std::size_t>(places.size(), 1);
    }
    return count;
  }

  bool is_read_in_place(const Version& version, const BufferPtr& tile) const {
    if (!version.source || version.opaque || !version.copies.empty() || version.readers.empty()) return false;
    // Reductions read what a loop gives them.
    const auto is_reduction = [&](std::size_t i) { return as<Reduce>(body_[i]) != nullptr; };
    if (version.by_loop && std::all_of(version.readers.begin(), version.readers.end(), is_reduction))
      return false;
    const DType from = version.source->from.view.buffer->type;
    const bool is_table = from.is_floating() && from.bits() < 16;  // converting takes as long as computing
    if (reads(version, tile) > (is_table ? 1 : most_reads) || tile->type.is_boolean() || from.is_boolean())
      return false;
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
    return {statement(Declare{own}, s->at), statement(std::move(loop), s->at),
            statement(std::move(reduce), s->at)};
  }

  // Lets the readers of one version read its source; whether there was one.
  bool read_sources() {
    const Mentions all = mentions();
    for (const BufferPtr& tile : tiles()) {
      const auto found = all.find(tile.get());
      if (found == all.end()) continue;
      for (const Version& version : versions_of(body_, tile, found->second, facts_))
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
      const bool reads =
          std::find(version.readers.begin(), version.readers.end(), i) != version.readers.end();
      Body own{body_[i]};
      if (reads)
        own = as<Reduce>(body_[i]) ? reduced(body_[i], tile, *version.source)
                                   : with_source(own, tile, *version.source);
      result.insert(result.end(), own.begin(), own.end());
    }
    body_ = std::move(result);
  }

  // Whether nothing but declarations, values and copies that became loops stands between the loop and the
  // copy.
  bool follows(const Version& version, std::size_t copy) const {
    for (std::size_t i = version.defined + 1; i < copy; ++i)
      if (!as<Declare>(body_[i]) && !as<Let>(body_[i]) && !stored_.contains(body_[i].get()) &&
          !loop_beside(i, version))
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
      const std::vector<Version> versions = versions_of(body_, tile, found->second, facts_);
      for (const Version& version : versions) store_in_loop(version, tile, versions.size() > 2);
    }
    Body result;
    for (std::size_t i = 0; i < body_.size(); ++i) {
      for (auto [own, end] = declared_.equal_range(i); own != end; ++own)
        result.push_back(statement(Declare{own->second}, body_[i]->at));
      result.push_back(body_[i]);
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
      if (const auto* store = as<Store>(s); store && store->to.view.buffer == tile)
        s = rename_buffers(Body{s}, by)[0];
    first = statement(std::move(loop), first->at);
    declared_.emplace(version.defined, own);
    for (const std::size_t at : version.copies) {
      stored_.erase(body_[at].get());
      body_[at] = rename_buffers(Body{body_[at]}, by)[0];
      stored_.insert(body_[at].get());
    }
  }

  Body body_;
  const Tensors& written_;
  const Facts& facts_;
  std::unordered_set<const StmtNode*> stored_;  // copies that have become loops
  // In front of statements, by their places: a loop may fill several, and is another one after each.
  std::multimap<std::size_t, BufferPtr> declared_;
};

Body in_loops(const Body& body, const Tensors& written, const Facts& facts) {
  Mapping nested;
  nested.body = [&](const Body& inner) { return in_loops(inner, written, facts); };
  Body result;
  for (const Stmt& s : body) {
    const auto* loop = as<For>(s);
    result.push_back(loop && loop->kind == LoopKind::parallel ? s : map(s, nested));
  }
  return Copies(std::move(result), written, facts).result();
}

// Indices have values in one place of the program alone.
Facts facts_of_indices(const Grid& grid) {
  Facts facts;
  for (std::size_t i = 0; i < grid.index.size(); ++i)
    facts.add_index(grid.index[i], int32(0), grid.extents[i]);
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    for (std::size_t i = 0; loop && i < loop->index.size(); ++i)
      facts.add_index(loop->index[i], loop->begin[i], loop->end[i]);
  });
  return facts;
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
    return in_loops(grid.body, by_any_name(std::move(written), kernel), facts_of_indices(grid));
  });
}

}  // namespace tegula::passes
