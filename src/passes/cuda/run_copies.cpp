#include "passes/cuda/run_copies.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool ends_within_piece(const Expr& extent, DType type) {
  return is_constant(extent) && constant_value(extent) * type.bytes() % piece_bytes != 0;
}

bool has_no_limits(const View& from) {
  return std::all_of(from.dims.begin(), from.dims.end(),
                     [](const ViewDim& dim) { return !dim.low && !dim.high; });
}

bool touches(const Stmt& s, const Buffer& tile) {
  const Effects all = all_effects(s);
  return std::any_of(all.regions.begin(), all.regions.end(),
                     [&](const Region& r) { return r.view->buffer.get() == &tile; });
}

bool loads_only(const For& loop, const Buffer& tile) {
  return std::all_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    return !touches(s, tile) || (load && load->from.view.buffer.get() == &tile);
  });
}

void for_each_element_loop(const Body& body, const std::function<void(const For&)>& visit) {
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) visit(*loop);
  });
}

// The one copy that fills the tile; null if there is another one, or something else does.
Stmt filling_copy(const Body& body, const Buffer& tile) {
  Stmt result;
  int writers = 0;
  for_each_stmt(body, [&](const Stmt& s) {
    const Effects own = effects(s);
    const bool writes = std::any_of(own.regions.begin(), own.regions.end(), [&](const Region& r) {
      return is_write(r.touch) && r.view->buffer.get() == &tile;
    });
    if (!writes) return;
    ++writers;
    if (as<Copy>(s)) result = s;
  });
  return writers == 1 ? result : nullptr;
}

}  // namespace

std::int64_t slot_bytes_of_run(const Buffer& tile) {
  constexpr std::int64_t unit = 128;
  return (tile.elements() * tile.type.bytes() + bytes_beside_run + unit - 1) / unit * unit;
}

bool is_run(const Copy& copy) {
  const View &from = copy.from, &to = copy.to;
  constexpr int widest = 4;  // bytes of an element
  if (from.is_tile() || !to.is_tile() || !is_whole(to) || !is_own_shape(from) || !is_zero(copy.fill))
    return false;
  const DType type = to.buffer->type;
  if (from.buffer->type != type || type.bytes() > widest || type.bits() < 8 || !has_no_limits(from))
    return false;
  const int rank = to.rank();
  const std::size_t dims = from.dims.size();
  if ((rank != 1 && rank != 2) || static_cast<int>(dims) < rank) return false;
  for (std::size_t d = 0; d < dims; ++d) {
    const int axis = static_cast<int>(d) - static_cast<int>(dims) + rank;
    if (from.dims[d].axis != (axis < 0 ? -1 : axis)) return false;
  }
  const Expr& row = from.shape.back();
  if (!ends_within_piece(row, type)) return false;
  const bool has_whole_rows =
      is_constant(from.dims.back().offset, 0) && constant_value(row) == to.extent(rank - 1);
  return rank == 1 || has_whole_rows;
}

bool is_read_by_elements(const Body& body, const Buffer& tile,
                         const std::unordered_set<const StmtNode*>& fills) {
  return std::all_of(body.begin(), body.end(), [&](const Stmt& s) {
    if (fills.contains(s.get()) || as<Declare>(s) || !touches(s, tile)) return true;
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) return loads_only(*loop, tile);
    const Effects own = effects(s);
    for (const Region& r : own.regions)
      if (r.view->buffer.get() == &tile) return false;
    bool result = true;
    for_each_body(s, [&](const Body& inner) { result &= is_read_by_elements(inner, tile, fills); });
    return result;
  });
}

bool is_read_again(const Body& body, const Buffer& tile) {
  for (int d = 0; d + 1 < tile.rank(); ++d)
    if (tile.extent(d) != 1) return false;
  int loops = 0;
  for_each_element_loop(body, [&](const For& loop) {
    loops += std::any_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
      const auto* load = as<Load>(s);
      return load && load->from.view.buffer.get() == &tile;
    });
  });
  return loops > 1;
}

std::unordered_set<const Buffer*> tiles_beside_runs(const Body& body,
                                                    const std::unordered_set<const Buffer*>& runs) {
  std::unordered_set<const Buffer*> beside, result;
  for_each_element_loop(body, [&](const For& loop) {
    std::unordered_set<const Buffer*> tiles;
    for (const Stmt& s : loop.body)
      if (const auto* load = as<Load>(s); load && load->from.view.buffer->space == Space::shared)
        tiles.insert(load->from.view.buffer.get());
    if (std::any_of(tiles.begin(), tiles.end(), [&](const Buffer* tile) { return runs.contains(tile); }))
      beside.merge(tiles);
  });
  for (const Buffer* tile : beside) {
    if (runs.contains(tile) || !ends_within_piece(tile->shape.back(), tile->type)) continue;
    const Stmt fill = filling_copy(body, *tile);
    if (fill && is_read_by_elements(body, *tile, {fill.get()})) result.insert(tile);
  }
  return result;
}

}  // namespace tegula::passes
