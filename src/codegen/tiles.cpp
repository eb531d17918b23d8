#include "codegen/tiles.hpp"

#include "codegen/rows.hpp"
#include "ir/effects.hpp"
#include "ir/zero.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The whole matrix, or its transpose.
bool is_whole_matrix(const View& view, bool& transposed) {
  if (view.rank() != 2 || view.buffer->rank() != 2 || is_reshaped(view)) return false;
  for (int d = 0; d < 2; ++d) {
    const ViewDim& dim = view.dims[static_cast<std::size_t>(d)];
    if (dim.axis < 0 || !is_constant(dim.offset, 0)) return false;
    if (view.extent(dim.axis) != view.buffer->extent(d)) return false;
  }
  transposed = view.dims[0].axis == 1;
  return true;
}

bool packs(DType from, DType to) {
  return from == to || (from.is_floating() && to.is_floating() && from != f64 && to != f64);
}

constexpr std::int64_t values_of_step = 32;  // of a row of A in a tile register

// Whether the statement may keep the tile as panels: it fills the whole of it from a tensor.
bool fills(const Stmt& stmt, const View& view) {
  bool transposed = false;
  if (!is_whole_matrix(view, transposed) || transposed) return false;
  if (const auto* copy = as<Copy>(stmt)) {
    return &view == &copy->to && !copy->from.is_tile() && packs(copy->from.buffer->type, view.buffer->type);
  }
  const auto* gather = as<Gather>(stmt);
  return gather != nullptr && &view == &gather->to && packs(gather->from.buffer->type, view.buffer->type);
}

// The whole matrix with its rows divided over several dimensions, as those of the pixels of a window are.
// Rows have no padding then, so only whole vectors have room as tile registers want them.
bool is_matrix_of_divided_rows(const View& view) {
  if (view.rank() < 3 || view.dims.size() != view.extents.size() || view.buffer->rank() != 2) return false;
  for (int d = 0; d < view.rank(); ++d) {
    const ViewDim& dim = view.dims[static_cast<std::size_t>(d)];
    if (dim.axis != d || !is_constant(dim.offset, 0)) return false;
    if (view.extent(d) != constant_value(view.shape[static_cast<std::size_t>(d)])) return false;
  }
  const std::int64_t columns = view.buffer->extent(1);
  return view.extent(view.rank() - 1) == columns && columns % row_unit == 0;
}

// Whether the statement may bring the tile as tile registers want it.
bool fills_narrow(const Stmt& stmt, const View& view) {
  const auto* gather = as<Gather>(stmt);
  if (gather != nullptr)
    return fills(stmt, view) && gather->from.buffer->type == bf16 && view.buffer->type == bf16;
  const auto* copy = as<Copy>(stmt);
  const bool is_filled =
      copy != nullptr &&
      (fills(stmt, view) || (&view == &copy->to && !copy->from.is_tile() && is_matrix_of_divided_rows(view)));
  return is_filled && is_zero(copy->fill) && copy->from.buffer->type == bf16 && view.buffer->type == bf16;
}

bool reads_narrow(const Stmt& stmt, const View& view) {
  const auto* gemm = as<Gemm>(stmt);
  bool transposed = false;
  return gemm != nullptr && is_product_of_bf16(*gemm) && gemm->c.extent(0) >= least_rows_by_tiles &&
         is_whole_matrix(view, transposed) && (&view == &gemm->b || (&view == &gemm->a && !transposed));
}

const Access* accessed(const Stmt& stmt) {
  const auto* load = as<Load>(stmt);
  const auto* store = as<Store>(stmt);
  return load ? &load->from : store ? &store->to : nullptr;
}

// Whether a loop over all elements of a matrix accesses its own one.
bool is_own_element(const Access& access, const For& loop) {
  const View& view = access.view;
  if (!view.is_tile() || !is_whole(view) || !is_own_shape(view) || !equal(loop.end, view.buffer->shape))
    return false;
  return is_variable(access.index[0], loop.index[0]) && is_variable(access.index[1], loop.index[1]);
}

// Whether the rows of the loop are whole steps of tile registers, and its statements have vectors.
bool goes_by_steps(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() != 2) return false;
  if (!is_constant(loop->end[1]) || constant_value(loop->end[1]) % values_of_step != 0) return false;
  for (const Stmt& s : loop->body)
    if (!as<Let>(s) && !accessed(s)) return false;
  const std::optional<RowOp> op = row_op(stmt);
  return op && op->vector;
}

class Uses {
 public:
  void visit(const Stmt& stmt) {
    if (goes_by_steps(stmt)) {
      const For& loop = *as<For>(stmt);
      for (const Stmt& s : loop.body)
        if (const Access* access = accessed(s); access && is_own_element(*access, loop))
          by_rows_.insert(s.get());
    }
    for_each_view(stmt, [&](const View& view) {
      if (!view.is_tile()) return;
      const Buffer* const tile = view.buffer.get();
      if (as<Gather>(stmt)) gathered_.insert(tile);
      if (is_reshaped(view)) uses.dense.insert(tile);
      if (!allows_panel(stmt, view)) others_.insert(tile);
      if (reads_narrow(stmt, view))
        (&view == &as<Gemm>(stmt)->a ? as_a_ : as_b_).insert(tile);
      else if (!fills_narrow(stmt, view) && !by_rows_.contains(stmt.get()))
        wide_.insert(tile);
    });
  }
  TileUses finish() {
    for (const Buffer* buffer : others_) uses.panels.erase(buffer);
    for (const Buffer* buffer : as_a_)
      if (!wide_.contains(buffer) && !as_b_.contains(buffer)) uses.narrow.insert(buffer);
    // Rows of a list fill the panels of B one by one.
    for (const Buffer* buffer : as_b_)
      if (!gathered_.contains(buffer) && !wide_.contains(buffer) && uses.panels.contains(buffer))
        uses.narrow.insert(buffer);
    return std::move(uses);
  }

 private:
  bool allows_panel(const Stmt& stmt, const View& view) {
    if (fills(stmt, view)) return true;
    const auto* gemm = as<Gemm>(stmt);
    bool transposed = false;
    if (gemm == nullptr || &view != &gemm->b || !is_whole_matrix(view, transposed)) return false;
    const auto [at, is_new] = uses.panels.try_emplace(view.buffer.get(), PanelTile{transposed});
    return is_new || at->second.transposed == transposed;
  }

  TileUses uses;
  std::unordered_set<const Buffer*> others_;  // no panels
  std::unordered_set<const Buffer*> as_a_, as_b_, wide_, gathered_;
  std::unordered_set<const StmtNode*> by_rows_;  // accesses of loops that tiles of A allow
};

}  // namespace

bool is_product_of_bf16(const Gemm& n) {
  return n.a.buffer->type == bf16 && n.b.buffer->type == bf16 && n.c.buffer->type == f32;
}

bool is_reshaped(const View& view) {
  if (view.shape.size() != view.buffer->shape.size()) return true;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (!equal(view.shape[i], view.buffer->shape[i])) return true;
  }
  return false;
}

TileUses tile_uses(const Body& body) {
  Uses uses;
  std::unordered_map<const Buffer*, std::size_t> mentions;
  for_each_stmt(body, [&](const Stmt& stmt) {
    uses.visit(stmt);
    for_each_view(stmt, [&](const View& view) { ++mentions[view.buffer.get()]; });
  });
  TileUses result = uses.finish();
  result.mentions = std::move(mentions);
  return result;
}

std::int64_t held_bytes(DType type) { return type.bits() == 64 ? 8 : 4; }

std::vector<std::int64_t> tile_strides(const Buffer& tile, bool dense) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(tile.rank()), 1);
  for (int d = tile.rank() - 2; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    const std::int64_t extent = tile.extent(d + 1);
    strides[at] = strides[at + 1] * (d == tile.rank() - 2 && !dense ? round_up(extent, row_unit) : extent);
  }
  return strides;
}

std::int64_t tile_elements(const Buffer& tile, bool dense) {
  if (tile.rank() == 0) return 1;
  if (tile.rank() == 1) return round_up(tile.extent(0), row_unit);
  return tile_strides(tile, dense)[0] * tile.extent(0);
}

}  // namespace tegula::codegen
