#include "codegen/placed_rows.hpp"

#include <algorithm>

namespace tegula::codegen {

using namespace ir;

namespace {

// The copy and the product mention it, and nothing else does.
bool has_one_reader(const Buffer* tile, const TileUses& uses) {
  const auto mentions = uses.mentions.find(tile);
  return mentions != uses.mentions.end() && mentions->second == 2;
}

bool brings_rows(const Copy& copy, const TileUses& uses) {
  const Buffer* const tile = copy.to.buffer.get();
  return !copy.from.is_tile() && copy.to.is_tile() && copy.to.rank() == 2 && is_whole(copy.to) &&
         uses.narrow.contains(tile) && !uses.panels.contains(tile) && has_one_reader(tile, uses);
}

}  // namespace

std::unordered_set<const Buffer*> placed_rows(const Body& body, const TileUses& uses, const Effects& block) {
  std::unordered_set<const Buffer*> declared, result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (const auto* declare = as<Declare>(body[i])) declared.insert(declare->tile.get());
    const auto* copy = as<Copy>(body[i]);
    if (!copy || !brings_rows(*copy, uses) || block.writes(copy->from.buffer)) continue;
    const bool is_multiplied = std::any_of(body.begin() + std::ptrdiff_t(i), body.end(), [&](const Stmt& s) {
      const auto* product = as<Gemm>(s);
      return product != nullptr && product->a.buffer == copy->to.buffer;
    });
    if (is_multiplied && declared.contains(copy->to.buffer.get())) result.insert(copy->to.buffer.get());
  }
  return result;
}

}  // namespace tegula::codegen
