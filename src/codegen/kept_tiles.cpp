#include "codegen/kept_tiles.hpp"

#include <algorithm>
#include <set>

#include "codegen/late_copies.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Of one copy in a loop: what one thread has of the last level of the cache, or little more.
constexpr std::int64_t most_kept_bytes = std::int64_t{8} << 20;
// Their records are cleared for each thread of a call.
constexpr std::int64_t most_kept_tiles = 64;

// On which indices of the grid variables depend. A number that a block reads once of a tensor, such as its
// group, may be the same in the next one: whether a tile is, its address says.
class Dependences {
 public:
  explicit Dependences(const Grid& grid) {
    for (std::size_t i = 0; i < grid.index.size(); ++i) {
      of_[grid.index[i]] = {i};
      all_.insert(i);
    }
    for (const Stmt& stmt : grid.body) {
      const auto* load = as<Load>(stmt);
      if (load && !load->from.view.is_tile()) numbers_.insert(load->variable);
    }
    for_each_stmt(grid.body, [&](const Stmt& stmt) { define(stmt); });
  }

  std::set<std::size_t> of(const View& view) const {
    std::set<std::size_t> result;
    for_each_expr(view, [&](const Expr& e) { result.merge(of(e)); });
    return result;
  }

 private:
  std::set<std::size_t> of(const Expr& e) const {
    std::set<std::size_t> result;
    for_each_variable(e, [&](const VariablePtr& v) {
      const auto known = of_.find(v);
      if (known != of_.end()) result.insert(known->second.begin(), known->second.end());
    });
    return result;
  }
  // What changes, and what tiles hold, may depend on everything.
  void define(const Stmt& stmt) {
    if (const auto* let = as<Let>(stmt)) {
      of_[let->variable] = of(let->value);
    } else if (const auto* load = as<Load>(stmt); load && numbers_.contains(load->variable)) {
      of_[load->variable] = {};
    } else if (load && !load->from.view.is_tile()) {
      of_[load->variable] = of(load->from.view);
      for (const Expr& e : load->from.index) of_[load->variable].merge(of(e));
    } else if (load || as<DeclareVar>(stmt)) {
      for_each_definition(stmt, [&](const VariablePtr& v) { of_[v] = all_; });
    }
  }

  std::unordered_map<VariablePtr, std::set<std::size_t>> of_;
  std::set<std::size_t> all_;
  std::set<VariablePtr> numbers_;  // of a block
};

bool is_same_everywhere(const Expr& fill) {
  bool same = true;
  if (fill) for_each_variable(fill, [&](const VariablePtr&) { same = false; });
  return same;
}

class Keeper {
 public:
  Keeper(const Kernel& kernel, const Grid& grid, const TileUses& uses)
      : kernel_(kernel), grid_(grid), uses_(uses), dependences_(grid), all_(all_effects(grid.body)) {}

  // Of the copies of a body, with the loop around it.
  void visit(const Body& body, const For* loop) {
    const LateCopies late = late_copies(body, uses_);
    for (const Stmt& stmt : body) {
      const auto* copy = as<Copy>(stmt);
      const bool by_product =
          std::any_of(late.begin(), late.end(), [&](const auto& own) { return own.second == stmt; });
      if (copy && !by_product && may_keep(body, *copy)) keep(stmt, *copy, loop);
      const auto* inner = as<For>(stmt);
      if (!loop && inner && inner->index.size() == 1 && inner->kind != LoopKind::parallel)
        visit(inner->body, inner);
    }
  }
  KeptCopies take() { return std::move(result_); }

 private:
  bool is_aliased(const BufferPtr& buffer) const {
    return std::any_of(kernel_.may_alias.begin(), kernel_.may_alias.end(),
                       [&](const auto& pair) { return pair.first == buffer || pair.second == buffer; });
  }
  // The tile is declared where it is filled, and panels that nothing else fills.
  bool may_keep(const Body& body, const Copy& copy) const {
    if (copy.from.is_tile() || !copy.to.is_tile() || copy.to.rank() != 2) return false;
    const BufferPtr& tile = copy.to.buffer;
    const bool declared = std::any_of(body.begin(), body.end(), [&](const Stmt& stmt) {
      const auto* declare = as<Declare>(stmt);
      return declare && declare->tile == tile;
    });
    const auto fills = std::count_if(all_.regions.begin(), all_.regions.end(), [&](const Region& r) {
      return r.view->buffer == tile && is_write(r.touch);
    });
    return declared && fills == 1 && uses_.panels.contains(tile.get()) && is_same_everywhere(copy.fill) &&
           !all_.writes(copy.from.buffer) && !is_aliased(copy.from.buffer);
  }
  void keep(const Stmt& stmt, const Copy& copy, const For* loop) {
    const std::set<std::size_t> same = dependences_.of(copy.from);
    const std::size_t fastest = fastest_index(grid_);
    // With one block along the fastest index the next one is.
    if (same.contains(fastest) && (same.size() == grid_.index.size() || is_constant(grid_.extents[fastest])))
      return;
    KeptTiles tiles{nullptr, 1, panel_tile_bytes(*copy.to.buffer), {same.begin(), same.end()}};
    if (loop) {
      tiles.step = loop->index[0];
      tiles.count = std::clamp<std::int64_t>(most_kept_bytes / tiles.bytes, 1, most_kept_tiles);
      if (is_constant(loop->end[0]))
        tiles.count = std::clamp<std::int64_t>(constant_value(loop->end[0]), 1, tiles.count);
    }
    result_.emplace(stmt.get(), tiles);
  }

  const Kernel& kernel_;
  const Grid& grid_;
  const TileUses& uses_;
  const Dependences dependences_;
  const Effects all_;
  KeptCopies result_;
};

}  // namespace

std::size_t fastest_index(const Grid& grid) {
  const bool by_columns = grid.hints.order == GridOrder::column ||
                          (grid.hints.order == GridOrder::grouped && grid.hints.group > 0);
  return by_columns && grid.index.size() > 1 ? 1 : 0;
}

std::int64_t panel_tile_bytes(const Buffer& tile) {
  return round_up(tile.extent(0), row_unit) * round_up(tile.extent(1), row_unit) * held_bytes(tile.type);
}

KeptCopies kept_copies(const Kernel& kernel, const Grid& grid, const TileUses& uses) {
  Keeper keeper(kernel, grid, uses);
  keeper.visit(grid.body, nullptr);
  return keeper.take();
}

}  // namespace tegula::codegen
