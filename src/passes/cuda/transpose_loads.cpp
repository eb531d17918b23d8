#include "passes/cuda/transpose_loads.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_byte_turns.hpp"
#include "passes/cuda/plan_rows.hpp"
#include "passes/cuda/ring_depths.hpp"
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
  Transposing(Roles& roles, const GridHints& hints, const CudaTarget& target)
      : roles_(roles), hints_(hints), target_(target) {
    for_each_stmt(roles.consumer, [&](const Stmt& s) {
      const auto* gemm = as<Gemm>(s);
      if (gemm && is_on_tensor_cores(*gemm)) operands_.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
    });
  }

  void run() {
    if (!comes_by_engine() || loads_.empty() || !can_be_one_thread() || !are_alone()) return;
    const Roles before = roles_;
    divide();
    if (reads_told(roles_.transposer) ||
        (!wide_.empty() && !has_room_beside(roles_, before, hints_, target_)))
      roles_ = before;
  }

 private:
  struct Load {
    BufferPtr tile, stored;
    Stmt load;                       // of what is stored
    std::optional<TensorCopy> plan;  // nothing: threads look its rows up
  };
  // A tile of wider elements: its statements, which are one after the other in a body.
  struct Wide {
    BufferPtr bytes;
    std::vector<const StmtNode*> fills;
    std::vector<WidenedRows> rows;
    std::int64_t columns = 0;
  };

  void divide() {
    for (const Stmt& s : vectors_) {
      RingPlan& ring = roles_.rings[ring_of(roles_.fills.at(s.get()))];
      ring.by_transposer = ring.by_rows = true;
    }
    roles_.producer = map_body(roles_.producer, [&](const Stmt& s) { return divided(s); });
    SliceRules rules;
    rules.wanted = [&](const Stmt& s) { return is_of_transposer(s); };
    rules.given = [](const Buffer&) { return true; };
    rules.refused = [](const Stmt&) { return false; };
    rules.left_out = [&](const Stmt& s) { return roles_.fills.contains(s.get()) && !is_of_transposer(s); };
    roles_.transposer = vectors_earlier(*slice(roles_.producer, rules));
    const Body loads = map_body(roles_.producer, [&](const Stmt& s) -> Body {
      const auto* declared = as<Declare>(s);
      const bool is_own = is_of_transposer(s) || (declared && is_made_by_transposer(declared->tile));
      return is_own ? Body{} : Body{s};
    });
    roles_.producer = in_front(loads);
  }

  std::size_t ring_of(const BufferPtr& tile) const {
    return static_cast<std::size_t>(roles_.ring_of(tile.get()));
  }
  bool is_made_by_transposer(const BufferPtr& tile) const {
    return roles_.is_transposed(tile.get()) ||
           (roles_.ring_of(tile.get()) >= 0 && roles_.rings[ring_of(tile)].by_transposer);
  }
  bool is_of_transposer(const Stmt& s) const {
    const auto fill = roles_.fills.find(s.get());
    return roles_.transpositions.contains(s.get()) ||
           (fill != roles_.fills.end() && is_made_by_transposer(fill->second));
  }

  bool comes_by_engine() {
    bool all = true;
    for_each_stmt(roles_.producer, [&](const Stmt& s) {
      const auto fill = roles_.fills.find(s.get());
      if (fill != roles_.fills.end()) all = all && comes_by_engine(s, fill->second);
    });
    return all;
  }

  // As a whole; if it is to be transposed or widened, as it is stored.
  bool comes_by_engine(const Stmt& s, const BufferPtr& tile) {
    if (const auto* copy = as<Copy>(s)) {
      const auto plan = plan_copy(*copy, true);
      if (plan) return !plan->is_clipped;
    }
    if (plan_elements(s)) return vectors_.push_back(s), true;
    return comes_as_bytes(s, tile) || comes_as_rows(s, tile) || is_turned(s, tile);
  }

  bool comes_as_bytes(const Stmt& s, const BufferPtr& tile) {
    const auto known = wide_.find(tile.get());
    const auto plan = plan_widening(s, known == wide_.end() ? nullptr : known->second.bytes);
    if (!plan || !operands_.contains(tile.get())) return false;
    Wide& wide = wide_[tile.get()];
    wide.bytes = plan->load.to.buffer;
    wide.fills.push_back(s.get()), wide.rows.push_back(plan->rows);
    wide.columns = std::max(wide.columns, columns_to_widen(s, *tile));
    loads_.emplace(s.get(), Load{tile, wide.bytes, statement(plan->load, s->at), plan->plan});
    return true;
  }

  // The loop that fills all of a tile to widen brings rows that are looked up.
  bool comes_as_rows(const Stmt& s, const BufferPtr& tile) {
    const auto load = wide_.contains(tile.get()) ? std::nullopt : rows_as_stored(s);
    if (!load || !operands_.contains(tile.get())) return false;
    const BufferPtr& bytes = as<Store>(as<For>(*load)->body.back())->to.view.buffer;
    wide_[tile.get()] = {
        bytes, {s.get()}, {{0, tile->extent(0), nullptr, nullptr}}, columns_to_widen(s, *tile)};
    loads_.emplace(s.get(), Load{tile, bytes, *load, {}});
    return true;
  }

  bool is_turned(const Stmt& s, const BufferPtr& tile) {
    const auto turn = plan_byte_turn(s);
    const auto view = turn ? transposed_view(*turn) : std::nullopt;
    if (!view) return false;
    const BufferPtr stored = tile_as_stored(*tile);
    const Copy copy{*view, whole(stored), nullptr};
    const auto plan = plan_copy(copy, true);
    if (!plan || plan->is_clipped || !swizzled_order(*stored).is_swizzled()) return false;
    loads_.emplace(s.get(), Load{tile, stored, statement(copy, s->at), *plan});
    return true;
  }

  // Vectors come without tiles that are brought otherwise; without tiles to widen, threads bring them.
  bool are_alone() const {
    return vectors_.empty() ||
           (!wide_.empty() && std::all_of(vectors_.begin(), vectors_.end(), [&](const Stmt& s) {
             const RingPlan& ring = roles_.rings[ring_of(roles_.fills.at(s.get()))];
             return ring.tiles.size() == 1 && ring.in_loop;
           }));
  }

  // It reads nothing that it brings, and has no tiles of its own. Warps that transpose have no time to add
  // what the consumers hand over.
  bool can_be_one_thread() const {
    const Effects effects = all_effects(roles_.producer);
    bool alone = std::none_of(roles_.rings.begin(), roles_.rings.end(), [&](const RingPlan& ring) {
      return !ring.told && std::any_of(ring.tiles.begin(), ring.tiles.end(),
                                       [&](const BufferPtr& tile) { return effects.reads(tile); });
    });
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

  // The statement becomes a copy to a tile of another ring, and one from there behind the last of the tile.
  Body divided(const Stmt& s) {
    const auto found = loads_.find(s.get());
    if (found == loads_.end()) return {s};
    const auto& [tile, stored, load, plan] = found->second;
    const auto wide = wide_.find(tile.get());
    const bool is_wide = wide != wide_.end();
    roles_.fills.erase(s.get());
    roles_.fills.emplace(load.get(), stored);
    if (plan) roles_.copies.emplace(load.get(), *plan);
    Body result;
    if (roles_.ring_of(stored.get()) < 0) {
      result.push_back(statement(Declare{stored}, s->at));
      RingPlan ring = roles_.rings[ring_of(tile)];
      ring.tiles = {stored};
      ring.to_transpose = true, ring.by_rows = !plan;
      roles_.rings.push_back(std::move(ring));
    }
    result.push_back(load);
    if (is_wide && wide->second.fills.back() != s.get()) return result;
    result.push_back(is_wide ? widening(stored, tile, wide->second.rows, s->at)
                             : statement(Copy{whole(stored), transposed(whole(tile)), nullptr}, s->at));
    Transposition own{stored, tile};
    if (is_wide) own.widened = wide->second.rows, own.columns = wide->second.columns;
    roles_.transpositions.emplace(result.back().get(), std::move(own));
    return result;
  }

  bool is_to_transpose(const BufferPtr& tile) const {
    return roles_.ring_of(tile.get()) >= 0 && roles_.rings[ring_of(tile)].to_transpose;
  }

  // Tiles to be transposed come in front of those beside them: they have further to go.
  Body in_front(const Body& statements) const {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return in_front(inner); };
    std::ptrdiff_t first = 0;  // behind what they may need
    for (const Stmt& s : statements) {
      const BufferPtr tile = tile_of(s);
      if (tile && is_to_transpose(tile)) {
        result.insert(result.begin() + first++, s);
        continue;
      }
      result.push_back(tile ? s : map(s, mapping));
      if (!tile) first = std::ssize(result);
    }
    return result;
  }

  // Vectors are under way while the tile before them is made, unless something between says where they are.
  Body vectors_earlier(const Body& statements) const {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return vectors_earlier(inner); };
    std::ptrdiff_t before = -1;  // that tile
    for (const Stmt& s : statements) {
      const BufferPtr tile = tile_of(s);
      const bool is_vector =
          tile && roles_.ring_of(tile.get()) >= 0 && roles_.rings[ring_of(tile)].by_transposer;
      if (is_vector && before >= 0) {
        result.insert(result.begin() + before++, s);
        continue;
      }
      if (roles_.transpositions.contains(s.get())) before = std::ssize(result);
      if (!tile) before = -1;
      result.push_back(tile ? s : map(s, mapping));
    }
    return result;
  }

  // That the statement declares or fills.
  BufferPtr tile_of(const Stmt& s) const {
    if (const auto* declared = as<Declare>(s)) return declared->tile;
    const auto fill = roles_.fills.find(s.get());
    const auto transposition = roles_.transpositions.find(s.get());
    if (transposition != roles_.transpositions.end()) return transposition->second.to;
    return fill == roles_.fills.end() ? nullptr : fill->second;
  }

  Roles& roles_;
  const GridHints& hints_;
  const CudaTarget& target_;
  std::unordered_set<const Buffer*> operands_;  // that tensor cores read
  std::unordered_map<const StmtNode*, Load> loads_;
  std::unordered_map<const Buffer*, Wide> wide_;
  std::vector<Stmt> vectors_;  // that are brought by elements
};

}  // namespace

void transpose_loads(Roles& roles, const GridHints& hints, const CudaTarget& target) {
  Transposing(roles, hints, target).run();
}

}  // namespace tegula::passes
