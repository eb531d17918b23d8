#include "passes/cuda/shared_rings.hpp"

#include <algorithm>

namespace tegula::passes {

namespace {

// A vector holds so much less than a tile that how long its slot is taken does not matter.
constexpr std::int64_t least_share = 16;

std::int64_t bytes_of(const RingTile& x) { return x.tile->elements() * x.tile->type.bytes(); }

bool come_alike(const RingTile& x, const RingTile& y) {
  return x.scope == y.scope && !x.awaited && !y.awaited && x.in_pieces == y.in_pieces;
}

bool are_used_alike(const RingTile& x, const RingTile& y) {
  return come_alike(x, y) && x.first == y.first && x.last == y.last;
}

bool can_carry(const RingTile& tile, const RingTile& x) {
  return come_alike(tile, x) && tile.is_box && x.is_box && tile.first <= x.first && x.last <= tile.last &&
         bytes_of(x) * least_share <= bytes_of(tile);
}

// Of the tiles that can carry it and are not carried themselves, that which is used for the shortest time.
const RingTile* carrier_of(const RingTile& x, const std::vector<RingTile>& tiles) {
  const bool has_own = std::any_of(tiles.begin(), tiles.end(),
                                   [&](const RingTile& y) { return &x != &y && are_used_alike(x, y); });
  if (has_own) return nullptr;
  const RingTile* result = nullptr;
  for (const RingTile& tile : tiles) {
    if (!can_carry(tile, x) || carrier_of(tile, tiles)) continue;
    if (!result || tile.last - tile.first < result->last - result->first) result = &tile;
  }
  return result;
}

}  // namespace

std::vector<std::vector<const RingTile*>> shared_rings(const std::vector<RingTile>& tiles) {
  std::vector<std::vector<const RingTile*>> rings;
  std::vector<std::pair<const RingTile*, const RingTile*>> carried;  // and by which
  for (const RingTile& x : tiles) {
    if (const RingTile* carrier = carrier_of(x, tiles)) {
      carried.emplace_back(&x, carrier);
      continue;
    }
    const auto known = std::find_if(rings.begin(), rings.end(),
                                    [&](const auto& ring) { return are_used_alike(x, *ring.front()); });
    if (known != rings.end())
      known->push_back(&x);
    else
      rings.push_back({&x});
  }
  for (const auto& [x, carrier] : carried)
    for (auto& ring : rings)
      if (std::find(ring.begin(), ring.end(), carrier) != ring.end()) ring.push_back(x);
  return rings;
}

}  // namespace tegula::passes
