#include "codegen/late_copies.hpp"

#include <algorithm>

#include "codegen/fetch_ahead.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

bool uses_mutable(const Copy& copy) {
  bool found = false;
  const auto look = [&](const Expr& e) {
    for_each_variable(e, [&](const VariablePtr& v) { found |= v->kind == VariableKind::mutable_; });
  };
  for_each_expr(copy.from, look);
  if (copy.fill) look(copy.fill);
  return found;
}

constexpr int few_rows = 4, columns_at_once = 4;  // of a product (dots.hpp)

// Rows of the tile are few enough to be fetched before: products read parts of many rows one after the other,
// where a copy reads whole rows. What a copy can narrow by itself is no panel of f32.
bool is_candidate(const Copy& copy, const TileUses& uses) {
  return !uses.narrow.contains(copy.to.buffer.get()) && uses.panels.contains(copy.to.buffer.get()) &&
         is_fetchable(copy) && !uses_mutable(copy);
}

// What a copy may not be moved after.
bool bars(const Effects& effects) { return effects.leaves || effects.writes_tensors(); }

bool touches(const Effects& effects, const BufferPtr& tile) {
  return effects.reads(tile) || effects.writes(tile);
}

bool may_copy(const Gemm& product, const TileUses& uses) {
  const bool transposed = uses.panels.at(product.b.buffer.get()).transposed;
  return transposed ? may_read_columns(product) && reads_once(product, uses) : may_fill_panels(product);
}

// The product that is the next to touch the tile, whatever happens in between.
const Stmt* product_behind(const Body& body, std::size_t copy, const BufferPtr& tile, const TileUses& uses) {
  for (std::size_t i = copy + 1; i < body.size(); ++i) {
    const auto* gemm = as<Gemm>(body[i]);
    if (gemm != nullptr && gemm->b.buffer == tile) return may_copy(*gemm, uses) ? &body[i] : nullptr;
    const Effects between = all_effects(body[i]);
    if (bars(between) || touches(between, tile)) return nullptr;
  }
  return nullptr;
}

}  // namespace

bool may_fill_panels(const Gemm& product) {
  return product.b.extent(1) % row_unit == 0 && product.c.buffer->type == f32;
}

bool may_read_columns(const Gemm& product) {
  return product.a.extent(1) % row_unit == 0 && product.b.extent(1) % columns_at_once == 0 &&
         product.c.buffer->type == f32 && is_whole(product.a);
}

// The copy and the product mention it.
bool reads_once(const Gemm& product, const TileUses& uses) {
  const auto mentions = uses.mentions.find(product.b.buffer.get());
  return product.c.extent(0) <= few_rows && mentions != uses.mentions.end() && mentions->second == 2;
}

LateCopies late_copies(const Body& body, const TileUses& uses) {
  LateCopies result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const auto* copy = as<Copy>(body[i]);
    if (copy == nullptr || !is_candidate(*copy, uses)) continue;
    if (const Stmt* product = product_behind(body, i, copy->to.buffer, uses))
      result.emplace(product->get(), body[i]);
  }
  return result;
}

}  // namespace tegula::codegen
