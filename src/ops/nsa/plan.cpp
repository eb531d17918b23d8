#include "ops/nsa/plan.hpp"

#include <algorithm>

#include "ops/lists/walk.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int most_rows = 256;
constexpr int usual_keys = 64, most_keys = 128;
constexpr int most_entries = 1024;  // of a tile: the work of joining its lists grows with their square

}  // namespace

NsaPlan plan_nsa(const NsaProblem& p, const AttentionTiles& given) {
  NsaPlan plan;
  plan.pack = p.per_query_head || p.group > most_rows ? 1 : static_cast<int>(p.group);
  // Neighbouring tokens fill the micro-kernel up for nothing: more rows would multiply blocks that only some
  // of the tokens selected.
  const int fitting = std::max(1, std::min(kernel_rows / plan.pack, most_entries / (p.entries + 1)));
  plan.queries = given.queries ? std::min(given.queries, std::max(1, most_rows / plan.pack))
                               : static_cast<int>(std::clamp<std::int64_t>(p.tokens, 1, fitting));
  const int wanted = given.keys ? given.keys : p.block <= usual_keys ? usual_keys : most_keys;
  plan.keys = tile_of_blocks(p.block, wanted).extent;
  return plan;
}

}  // namespace tegula::ops
