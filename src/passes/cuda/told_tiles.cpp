#include "passes/cuda/told_tiles.hpp"

#include <algorithm>

#include "ir/effects.hpp"

namespace tegula::passes {

using namespace ir;

std::vector<BufferPtr> told_tiles(const Body& body) {
  struct Uses {
    BufferPtr tile;
    std::size_t written = 0, read = 0;  // last, and first
    bool by_loops = true;               // over elements
  };
  std::vector<Uses> all;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const auto* declared = as<Declare>(body[i]);
    if (declared && declared->tile->space == Space::shared && declared->tile->rank() == 1)
      all.push_back({declared->tile, 0, body.size()});
    const auto* loop = as<For>(body[i]);
    for (const Region& r : all_effects(body[i]).regions) {
      const auto own =
          std::find_if(all.begin(), all.end(), [&](const Uses& x) { return x.tile == r.view->buffer; });
      if (own == all.end()) continue;
      if (is_write(r.touch)) own->written = i, own->by_loops &= loop && loop->kind == LoopKind::parallel;
      if (is_read(r.touch)) own->read = std::min(own->read, i);
    }
  }
  std::vector<BufferPtr> result;
  for (const Uses& own : all)
    if (own.by_loops && own.written > 0 && own.written < own.read) result.push_back(own.tile);
  return result;
}

}  // namespace tegula::passes
