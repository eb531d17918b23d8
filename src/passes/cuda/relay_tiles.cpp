#include "passes/cuda/relay_tiles.hpp"

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/late_products.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int slots_of_relay = 2;

// Whether the loop stores every element of the tile, each at its own indices, and reads none.
bool fills_whole(const Stmt& s, const BufferPtr& tile) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.empty()) return false;
  const auto* store = as<Store>(loop->body.back());
  if (!store || store->to.view.buffer != tile || !is_whole(store->to.view)) return false;
  if (all_effects(s).reads(tile)) return false;
  if (loop->index.size() != store->to.index.size()) return false;
  for (std::size_t i = 0; i < loop->index.size(); ++i) {
    const Expr& at = store->to.index[i];
    const bool is_all = is_constant(loop->begin[i]) && constant_value(loop->begin[i]) == 0 &&
                        is_constant(loop->end[i]) &&
                        constant_value(loop->end[i]) == tile->extent(static_cast<int>(i));
    if (at->op != Op::variable || at->variable != loop->index[i] || !is_all) return false;
  }
  return true;
}

// What the consumers do with one tile.
class Relay {
 public:
  Relay(const Roles& roles, const CudaTarget& target, const BufferPtr& tile)
      : roles_(roles), target_(target), tile_(tile) {}

  // Whether it passes something on, and nothing else is done with it.
  bool is_possible() {
    look(roles_.consumer, false);
    return possible_ && passes_on_;
  }

  // The body with declarations of the tile's slots. `before` gets the tiles of the step before.
  Body rewritten(const Body& body, std::unordered_map<const Buffer*, BufferPtr>& before) const {
    Body result;
    BufferPtr last;  // the tile of the step before in this body, unless it was written since
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return rewritten(inner, before); };
    for (const Stmt& s : body) {
      const auto* declared = as<Declare>(s);
      if (declared && declared->tile == tile_) continue;
      if (reads(s) && !last) {
        Buffer own = *tile_;
        own.name += "_before";
        last = std::make_shared<const Buffer>(std::move(own));
        before.emplace(last.get(), tile_);
        result.push_back(statement(Declare{last}, s->at));
      }
      if (writes(s)) result.push_back(statement(Declare{tile_}, s->at));
      Mapping reading;
      reading.buffer = [&](const BufferPtr& b) { return b == tile_ ? last : b; };
      result.push_back(map(s, reads(s) ? reading : mapping));
      if (all_effects(s).writes(tile_)) last = nullptr;
    }
    return result;
  }

 private:
  bool writes(const Stmt& s) const { return fills_whole(s, tile_); }
  bool reads(const Stmt& s) const {
    const auto* gemm = as<Gemm>(s);
    return gemm && (gemm->a.buffer == tile_ || gemm->b.buffer == tile_);
  }

  void look(const Body& body, bool is_step) {
    bool read = false, written = false;
    for (const Stmt& s : body) {
      if (reads(s)) {
        possible_ &= can_run_on(s, roles_, target_) && !(is_step && written);
        read = true;
      } else if (writes(s)) {
        passes_on_ |= is_step && read;
        possible_ &= !written && (is_step || !read);
        written = true;
      } else {
        other(s);
      }
    }
  }

  // A loop whose steps all consumers run together; nothing else may touch the tile.
  void other(const Stmt& s) {
    const auto* declared = as<Declare>(s);
    const Effects all = all_effects(s);
    if ((declared && declared->tile == tile_) || !(all.reads(tile_) || all.writes(tile_))) return;
    const auto* loop = as<For>(s);
    const bool is_step = loop && loop->kind == LoopKind::pipelined;
    if (!is_step && !(loop && loop->kind == LoopKind::serial)) {
      possible_ = false;
      return;
    }
    look(loop->body, is_step);
  }

  const Roles& roles_;
  const CudaTarget& target_;
  const BufferPtr tile_;
  bool possible_ = true, passes_on_ = false;
};

}  // namespace

void relay_tiles(Roles& roles, const CudaTarget& target) {
  if (roles.dealt || roles.cluster() > 1 || roles.consumers <= threads_of_group) return;
  std::vector<BufferPtr> tiles;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (declared && declared->tile->space == Space::shared && declared->tile->rank() == 2 &&
        roles.ring_of(declared->tile.get()) < 0)
      tiles.push_back(declared->tile);
  });
  for (const BufferPtr& tile : tiles) {
    Relay relay(roles, target, tile);
    if (slot_bytes(*tile) > roles.spare_bytes || !relay.is_possible()) continue;
    roles.consumer = relay.rewritten(roles.consumer, roles.before);
    RingPlan ring;
    ring.tiles = {tile}, ring.depth = slots_of_relay, ring.in_loop = true, ring.relayed = true;
    roles.rings.push_back(std::move(ring));
    roles.spare_bytes -= slot_bytes(*tile);
  }
}

}  // namespace tegula::passes
