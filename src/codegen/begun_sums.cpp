#include "codegen/begun_sums.hpp"

#include <algorithm>

#include "codegen/rows.hpp"
#include "ir/effects.hpp"
#include "ir/zero.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

bool uses_tile(const Effects& effects, const BufferPtr& tile) {
  return effects.reads(tile) || effects.writes(tile);
}

// The tile that the statement fills with zeros and does nothing else to.
BufferPtr cleared_tile(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 1) return nullptr;
  const auto* store = as<Store>(loop->body[0]);
  if (!store || !is_zero(store->value) || !is_whole(store->to.view) || !store->to.view.is_tile())
    return nullptr;
  if (store->to.index.size() != loop->index.size()) return nullptr;
  const BufferPtr& tile = store->to.view.buffer;
  for (std::size_t i = 0; i < loop->index.size(); ++i) {
    const bool all = is_variable(store->to.index[i], loop->index[i]) && is_constant(loop->begin[i], 0) &&
                     is_constant(loop->end[i], tile->extent(static_cast<int>(i)));
    if (!all) return nullptr;
  }
  return tile;
}

bool adds_to_all(const Gemm& product, const BufferPtr& tile) {
  return product.c.buffer == tile && is_whole(product.c) && !product.overwrite && product.a.buffer != tile &&
         product.b.buffer != tile;
}

// The one statement of the loop that touches the tile, if that is a product that every step forms.
Stmt product_of(const For& loop, const BufferPtr& tile) {
  const bool counts = loop.kind == LoopKind::pipelined || loop.kind == LoopKind::serial;
  if (!counts || loop.index.size() != 1 || all_effects(loop.body).leaves) return nullptr;
  Stmt found;
  for (const Stmt& stmt : loop.body) {
    if (!uses_tile(all_effects(stmt), tile)) continue;
    const auto* product = as<Gemm>(stmt);
    if (found || !product || !adds_to_all(*product, tile)) return nullptr;
    found = stmt;
  }
  return found;
}

// Tile registers hold rows and columns of C in whole vectors, which conversions store.
bool may_leave(const Gemm& product, const Copy& copy) {
  const DType type = copy.to.buffer->type;
  return is_product_of_bf16(product) && product.c.extent(0) >= least_rows_by_tiles &&
         product.c.extent(1) % row_unit == 0 && (type == bf16 || type == f16 || type == f32) &&
         copy.from.rank() == 2 && is_whole(copy.from) && !is_reshaped(copy.from) && !copy.to.is_tile();
}

// The copy of the sums to a tensor that nothing touches from the loop on, if the clear, the product and it
// are all that mention the tile.
Stmt leaving_copy(const Body& body, std::size_t loop, const Stmt& product, const TileUses& uses) {
  const Gemm& sums = *as<Gemm>(product);
  const BufferPtr& tile = sums.c.buffer;
  const auto mentions = uses.mentions.find(tile.get());
  if (mentions == uses.mentions.end() || mentions->second != 3) return nullptr;
  const auto found = std::find_if(body.begin() + std::ptrdiff_t(loop) + 1, body.end(), [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    return copy && copy->from.buffer == tile;
  });
  if (found == body.end() || !may_leave(sums, *as<Copy>(*found))) return nullptr;
  const Effects before = all_effects(Body(body.begin() + std::ptrdiff_t(loop), found));
  return before.leaves || uses_tile(before, as<Copy>(*found)->to.buffer) ? nullptr : *found;
}

}  // namespace

BegunSums begun_sums(const Body& body, const TileUses& uses) {
  BegunSums result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const BufferPtr tile = cleared_tile(body[i]);
    if (!tile) continue;
    for (std::size_t k = i + 1; k < body.size(); ++k) {
      const Effects e = all_effects(body[k]);
      if (!uses_tile(e, tile) && !e.leaves) continue;
      const auto* loop = as<For>(body[k]);
      const Stmt product = loop ? product_of(*loop, tile) : nullptr;
      if (product) result[body[k].get()].push_back({body[i], product, leaving_copy(body, k, product, uses)});
      break;
    }
  }
  return result;
}

}  // namespace tegula::codegen
