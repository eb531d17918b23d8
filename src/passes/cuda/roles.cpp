// What a block's roles know of their rings.
#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/plan_rows.hpp"
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

using namespace ir;

bool is_among(const std::vector<BufferPtr>& tiles, const Buffer* tile) {
  return std::any_of(tiles.begin(), tiles.end(), [&](const BufferPtr& own) { return own.get() == tile; });
}

std::int64_t slot_alignment(const Buffer& tile) { return tile.rank() == 1 ? 128 : 1024; }

std::int64_t slot_bytes(const Buffer& tile) {
  const std::int64_t unit = slot_alignment(tile);
  return (tile.elements() * tile.type.bytes() + unit - 1) / unit * unit;
}

const std::vector<BufferPtr>& RingPlan::with(const Buffer* tile) const {
  for (const std::vector<BufferPtr>& others : in_place)
    if (is_among(others, tile)) return others;
  return tiles;
}

std::vector<BufferPtr> RingPlan::at(std::size_t number) const {
  std::vector<BufferPtr> result{tiles[number]};
  for (const std::vector<BufferPtr>& others : in_place)
    if (number < others.size()) result.push_back(others[number]);
  return result;
}

std::int64_t slot_bytes(const RingPlan& ring) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < ring.tiles.size(); ++i) {
    std::int64_t most = 0;
    for (const BufferPtr& tile : ring.at(i)) most = std::max(most, slot_bytes(*tile));
    bytes += most;
  }
  return bytes;
}

int Roles::ring_of(const Buffer* tile) const {
  for (std::size_t r = 0; r < rings.size(); ++r) {
    if (is_among(rings[r].with(tile), tile)) return static_cast<int>(r);
  }
  return -1;
}

bool Roles::is_told(int ring) const {
  return ring >= 0 && ring < static_cast<int>(rings.size()) && rings[static_cast<std::size_t>(ring)].told;
}

bool Roles::brings_elements() const {
  if (!transposer.empty()) return false;
  return std::all_of(fills.begin(), fills.end(), [&](const auto& fill) {
    const auto plan = copies.find(fill.first);
    const bool by_engine = plan != copies.end() && !plan->second.is_clipped;
    return by_engine || (fill.second->rank() == 1 && fill.second->elements() <= loaders());
  });
}

bool Roles::looks_bytes_up() const {
  return std::any_of(rings.begin(), rings.end(),
                     [](const RingPlan& ring) { return ring.to_transpose && ring.by_rows; });
}

bool Roles::holds_pieces() const {
  bool result = false;
  for_each_stmt(producer, [&](const Stmt& s) {
    const auto rows = plan_rows(s);
    result |= rows && rows->holds_words();
  });
  return result;
}

bool Roles::is_relayed(int ring) const {
  return ring >= 0 && ring < static_cast<int>(rings.size()) && rings[static_cast<std::size_t>(ring)].relayed;
}

bool Roles::is_transposed(const Buffer* tile) const {
  return std::any_of(transpositions.begin(), transpositions.end(),
                     [&](const auto& own) { return own.second.to.get() == tile; });
}

bool Roles::has_transposed(const RingPlan& ring) const {
  return std::any_of(ring.tiles.begin(), ring.tiles.end(),
                     [&](const BufferPtr& tile) { return is_transposed(tile.get()); });
}

bool Roles::has_loaded(const RingPlan& ring) const {
  return !std::all_of(ring.tiles.begin(), ring.tiles.end(),
                      [&](const BufferPtr& tile) { return is_transposed(tile.get()); });
}

bool Roles::is_brought_by_threads(const RingPlan& ring) const {
  return !ring.by_rows && std::any_of(fills.begin(), fills.end(), [&](const auto& fill) {
    const auto plan = copies.find(fill.first);
    return is_among(ring.with(fill.second.get()), fill.second.get()) &&
           (plan == copies.end() || plan->second.is_clipped);
  });
}

}  // namespace tegula::passes
