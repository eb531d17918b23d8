#include "passes/cuda/own_copies.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int most_threads_beside_others = 512;
constexpr std::int64_t piece_of_copy = 16;  // bytes
constexpr std::int64_t threads_of_warp = 32;

// Whether copies are of whole pieces of rows: they begin inside of the tensor and so can only be cut at their
// end. Then piece p is copied by thread p modulo the number of threads.
bool is_cut_into_pieces(const Copy& n, const VariablePtr& step) {
  const DType type = n.to.buffer->type;
  if (!is_whole(n.to) || n.to.rank() == 0 || n.from.buffer->type != type || !is_own_shape(n.to)) return false;
  const int last = n.to.rank() - 1;
  if (n.to.extent(last) * type.bytes() % piece_of_copy != 0) return false;
  return std::any_of(n.from.dims.begin(), n.from.dims.end(), [&](const ViewDim& dim) {
    if (dim.axis != last || (dim.low && !is_constant(dim.low, 0)) || !has_affine_form(dim.offset->held()))
      return false;
    const Affine first = affine(dim.offset);
    return first.constant >= 0 && std::all_of(first.terms.begin(), first.terms.end(), [&](const auto& term) {
             return term.factor > 0 && is_variable(term.atom, step);
           });
  });
}

// Whether the loop's warps take from the tile only elements of pieces that they have copied.
bool takes_own(const For& loop, const layout::Layout& layout, const Buffer& tile, int threads) {
  const std::int64_t elements = piece_of_copy / tile.type.bytes();
  if (layout.thread_count() != threads || layout.replicas() != 1) return false;
  for (std::int64_t thread = 0; thread < threads; ++thread)
    for (std::int64_t reg = 0; reg < layout.register_count(); ++reg) {
      const layout::Coordinates at = layout.coordinates(thread, reg);
      if (!layout.is_inside(at)) continue;
      std::int64_t number = 0;
      for (std::size_t d = 0; d < at.size(); ++d) number = number * constant_value(loop.end[d]) + at[d];
      if (number / elements % threads / threads_of_warp != thread / threads_of_warp) return false;
    }
  return true;
}

class Readers {
 public:
  Readers(const CopyRings& rings, const Layouts& layouts, int threads)
      : rings_(rings), layouts_(layouts), threads_(threads) {}

  // Whether all that the statements read of the tile has been copied by the warp that reads it.
  bool are_own(const Body& body, const BufferPtr& tile) const {
    return std::all_of(body.begin(), body.end(), [&](const Stmt& s) {
      const auto* loop = as<For>(s);
      if (rings_.fills.contains(s.get())) return true;
      if (loop && loop->kind == LoopKind::parallel) return !touches(s, tile) || is_own(*loop, s, tile);
      if (effects(s).reads(tile) || effects(s).writes(tile)) return false;
      bool own = true;
      for_each_body(s, [&](const Body& inner) { own &= are_own(inner, tile); });
      return own;
    });
  }

 private:
  static bool touches(const Stmt& s, const BufferPtr& tile) {
    const Effects all = all_effects(s);
    return all.reads(tile) || all.writes(tile);
  }

  bool is_own(const For& loop, const Stmt& s, const BufferPtr& tile) const {
    const auto layout = layouts_.loops.find(s.get());
    if (layout == layouts_.loops.end() || loop.index.size() != tile->shape.size()) return false;
    for (const Stmt& inner : loop.body) {
      const auto* load = as<Load>(inner);
      if (!touches(inner, tile)) continue;
      if (!load || !is_whole(load->from.view) || !is_at_index(loop, load->from)) return false;
    }
    return takes_own(loop, layout->second, *tile, threads_);
  }

  static bool is_at_index(const For& loop, const Access& access) {
    for (std::size_t d = 0; d < loop.index.size(); ++d)
      if (!is_variable(access.index[d], loop.index[d]) || !is_constant(loop.begin[d], 0) ||
          !equal(loop.end[d], access.view.buffer->shape[d]))
        return false;
    return true;
  }

  const CopyRings& rings_;
  const Layouts& layouts_;
  int threads_;
};

bool fills_in_pieces(const For& loop, const CopyRings& rings) {
  bool result = true;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    if (!rings.fills.contains(s.get())) return;
    const auto* copy = as<Copy>(s);
    result &= copy && !rings.runs.contains(copy->to.buffer.get()) && is_cut_into_pieces(*copy, loop.index[0]);
  });
  return result;
}

}  // namespace

bool let_warps_go_alone(CopyRings& rings, const Grid& grid, const Layouts& layouts) {
  if (grid.hints.cluster == 1 && grid.hints.threads <= most_threads_beside_others) return false;
  const Readers readers(rings, layouts, grid.hints.threads);
  std::unordered_set<int> numbers;  // of the rings
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto found = rings.loops.find(s.get());
    if (found == rings.loops.end()) return;
    const auto& loop = *as<For>(s);
    CopyRing& ring = found->second;
    // A loop that goes back brings what the one before it did.
    if (ring.goes_back ? !numbers.contains(ring.number) : !fills_in_pieces(loop, rings)) return;
    const bool own = std::all_of(ring.tiles.begin(), ring.tiles.end(),
                                 [&](const BufferPtr& tile) { return readers.are_own(loop.body, tile); });
    if (!own) return;
    ring.is_own = true;
    numbers.insert(ring.number);
    for (schedule::Event& e : ring.begin)
      if (std::holds_alternative<schedule::Barrier>(e.what)) e.what = schedule::WarpSync{};
  });
  return !numbers.empty();
}

}  // namespace tegula::passes
