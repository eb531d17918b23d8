#include "passes/cuda/transpose_loads.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_byte_turns.hpp"
#include "passes/slice.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The view of the tensor that the loop copies, row by row, to columns of a tile.
std::optional<View> transposed_view(const ByteTurn& turn) {
  const ir::Access& from = turn.load->from;
  for (std::size_t i = 0; i < from.index.size(); ++i)
    if (from.index.size() != 2 || !is_variable(from.index[i], turn.loop->index[i])) return std::nullopt;
  return from.view;
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
    if (!comes_by_engine() || loads_.empty() || !can_be_one_thread()) return;
    const Roles before = roles_;
    roles_.producer = map_body(roles_.producer, [&](const Stmt& s) { return divided(s); });
    SliceRules rules;
    rules.wanted = [&](const Stmt& s) { return roles_.transpositions.contains(s.get()); };
    rules.given = [](const Buffer&) { return true; };
    rules.refused = [](const Stmt&) { return false; };
    rules.left_out = [&](const Stmt& s) { return roles_.fills.contains(s.get()); };
    roles_.transposer = *slice(roles_.producer, rules);
    if (reads_told(roles_.transposer)) {
      roles_ = before;
      return;
    }
    roles_.producer = in_front(map_body(roles_.producer, [&](const Stmt& s) -> Body {
      const auto* declared = as<Declare>(s);
      const bool is_own =
          roles_.transpositions.contains(s.get()) || (declared && roles_.is_transposed(declared->tile.get()));
      return is_own ? Body{} : Body{s};
    }));
  }

 private:
  struct Load {
    BufferPtr tile;
    Copy copy;
    TensorCopy plan;
  };

  bool comes_by_engine() {
    bool all = true;
    for_each_stmt(roles_.producer, [&](const Stmt& s) {
      const auto fill = roles_.fills.find(s.get());
      if (fill != roles_.fills.end()) all = all && comes_by_engine(s, fill->second);
    });
    return all;
  }

  // As a whole; if it is to be transposed, as it is stored.
  bool comes_by_engine(const Stmt& s, const BufferPtr& tile) {
    if (const auto* copy = as<Copy>(s)) {
      const auto plan = plan_copy(*copy, true);
      return plan && !plan->is_clipped;
    }
    const auto turn = plan_byte_turn(s);
    const auto view = turn ? transposed_view(*turn) : std::nullopt;
    if (!view) return false;
    const BufferPtr stored = tile_as_stored(*tile);
    const Copy copy{*view, whole(stored), nullptr};
    const auto plan = plan_copy(copy, true);
    if (!plan || plan->is_clipped || !swizzled_order(*stored).is_swizzled()) return false;
    loads_.emplace(s.get(), Load{tile, copy, *plan});
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

  // The producer awaits what the consumers tell it, for itself alone.
  bool reads_told(const Body& program) const {
    const Effects effects = all_effects(program);
    return std::any_of(roles_.rings.begin(), roles_.rings.end(),
                       [&](const RingPlan& ring) { return ring.told && effects.reads(ring.tiles[0]); });
  }

  // The loop becomes a copy to a tile of another ring, and one from there.
  Body divided(const Stmt& s) {
    const auto found = loads_.find(s.get());
    if (found == loads_.end()) return {s};
    const auto& [tile, copy, plan] = found->second;
    const BufferPtr& stored = copy.to.buffer;
    const Stmt load = statement(copy, s->at);
    const Stmt transposition = statement(Copy{whole(stored), transposed(whole(tile)), nullptr}, s->at);
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

  bool is_to_transpose(const BufferPtr& tile) const {
    const int ring = roles_.ring_of(tile.get());
    return ring >= 0 && roles_.rings[static_cast<std::size_t>(ring)].to_transpose;
  }

  // Such tiles come in front of those beside them: they have further to go.
  Body in_front(const Body& statements) const {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return in_front(inner); };
    std::ptrdiff_t first = 0;  // behind what they may need
    for (const Stmt& s : statements) {
      const auto* declared = as<Declare>(s);
      const auto fill = roles_.fills.find(s.get());
      const bool is_load = declared || fill != roles_.fills.end();
      if (is_load && is_to_transpose(declared ? declared->tile : fill->second)) {
        result.insert(result.begin() + first++, s);
        continue;
      }
      result.push_back(is_load ? s : map(s, mapping));
      if (!is_load) first = std::ssize(result);
    }
    return result;
  }

  Roles& roles_;
  std::unordered_map<const StmtNode*, Load> loads_;
};

}  // namespace

void transpose_loads(Roles& roles) { Transposing(roles).run(); }

}  // namespace tegula::passes
