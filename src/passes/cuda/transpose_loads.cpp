#include "passes/cuda/transpose_loads.hpp"

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "passes/slice.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// What a warp transposes at once.
constexpr std::int64_t transposed_rows = 32, transposed_columns = 16;

bool is_whole_number(const Expr& extent, std::int64_t unit) {
  return is_constant(extent) && constant_value(extent) % unit == 0;
}

// Whether the copy fills all of an 8-bit tile with columns for rows, in whole pieces.
bool transposes(const Copy& copy) {
  const Buffer& tile = *copy.to.buffer;
  return tile.type.bits() == 8 && is_matrix(copy.to) && is_transposed(copy.to) &&
         is_whole_number(tile.shape[0], transposed_columns) && is_whole_number(tile.shape[1], transposed_rows);
}

// The tile as the tensor has it.
BufferPtr tile_as_stored(const Buffer& tile) {
  return new_tile((tile.name + "_as_stored").c_str(), tile.space, tile.type, {tile.shape[1], tile.shape[0]},
                  tile.at);
}

class Transposing {
 public:
  explicit Transposing(Roles& roles) : roles_(roles) {}

  void run() {
    if (!find() || loads_.empty() || !can_be_one_thread()) return;
    roles_.producer = map_body(roles_.producer, [&](const Stmt& s) { return divided(s); });
    SliceRules rules;
    rules.wanted = [&](const Stmt& s) { return roles_.transpositions.contains(s.get()); };
    rules.given = [](const Buffer&) { return true; };
    rules.refused = [](const Stmt&) { return false; };
    rules.left_out = [&](const Stmt& s) { return roles_.fills.contains(s.get()); };
    roles_.transposer = *slice(roles_.producer, rules);
    roles_.producer = map_body(roles_.producer, [&](const Stmt& s) -> Body {
      const auto* declared = as<Declare>(s);
      const bool is_own = roles_.transpositions.contains(s.get()) ||
                          (declared && roles_.is_transposed(declared->tile.get()));
      return is_own ? Body{} : Body{s};
    });
  }

 private:
  struct Load {
    BufferPtr tile, stored;
    TensorCopy plan;
  };

  // Whether the engine brings every tile as a whole, those to be transposed as they are stored.
  bool find() {
    for (const auto& [stmt, tile] : roles_.fills) {
      const auto* copy = std::get_if<Copy>(&stmt->node);
      if (!copy) return false;
      if (!transposes(*copy)) {
        const auto plan = plan_copy(*copy, true);
        if (!plan || plan->is_clipped) return false;
        continue;
      }
      const BufferPtr stored = tile_as_stored(*tile);
      const auto plan = plan_copy({copy->from, whole(stored), copy->fill}, true);
      if (!plan || plan->is_clipped || !swizzled_order(*stored).is_swizzled()) return false;
      loads_.emplace(stmt, Load{tile, stored, *plan});
    }
    return true;
  }

  // It reads nothing that it brings, and has no tiles of its own. Warps that transpose have no time to add
  // what the consumers hand over.
  bool can_be_one_thread() const {
    bool alone = std::none_of(roles_.rings.begin(), roles_.rings.end(),
                              [](const RingPlan& ring) { return ring.is_awaited; });
    for_each_stmt(roles_.producer, [&](const Stmt& s) {
      const auto* declared = as<Declare>(s);
      alone &= !declared || roles_.ring_of(declared->tile.get()) >= 0;
    });
    return alone;
  }

  // The copy becomes one to a tile of another ring, and one from there.
  Body divided(const Stmt& s) {
    const auto found = loads_.find(s.get());
    if (found == loads_.end()) return {s};
    const auto& [tile, stored, plan] = found->second;
    const Copy& copy = *as<Copy>(s);
    const Stmt load = statement(Copy{copy.from, whole(stored), copy.fill}, s->at);
    const Stmt transposition = statement(Copy{whole(stored), copy.to, nullptr}, s->at);
    roles_.fills.erase(s.get());
    roles_.fills.emplace(load.get(), stored);
    roles_.copies.emplace(load.get(), plan);
    roles_.transpositions.emplace(transposition.get(), Transposition{stored, tile});
    RingPlan ring = roles_.rings[static_cast<std::size_t>(roles_.ring_of(tile.get()))];
    ring.tiles = {stored};
    ring.to_transpose = true;
    roles_.rings.push_back(std::move(ring));
    return {statement(Declare{stored}, s->at), load, transposition};
  }

  Roles& roles_;
  std::unordered_map<const StmtNode*, Load> loads_;
};

}  // namespace

void transpose_loads(Roles& roles) { Transposing(roles).run(); }

}  // namespace tegula::passes
