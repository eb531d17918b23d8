#include "codegen/placed_rows.hpp"

#include <algorithm>
#include <unordered_set>

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

std::unordered_map<const Buffer*, Stmt> placed_rows(const Body& body, const TileUses& uses,
                                                    const Effects& block) {
  std::unordered_set<const Buffer*> declared;
  std::unordered_map<const Buffer*, Stmt> result;
  for (auto at = body.begin(); at != body.end(); ++at) {
    if (const auto* declare = as<Declare>(*at)) declared.insert(declare->tile.get());
    const auto* copy = as<Copy>(*at);
    if (!copy || !brings_rows(*copy, uses) || block.writes(copy->from.buffer)) continue;
    const BufferPtr& tile = copy->to.buffer;
    const auto product = std::find_if(at, body.end(), [&](const Stmt& s) {
      const auto* gemm = as<Gemm>(s);
      return gemm != nullptr && gemm->a.buffer == tile;
    });
    if (product != body.end() && declared.contains(tile.get())) result.emplace(tile.get(), *product);
  }
  return result;
}

}  // namespace tegula::codegen
