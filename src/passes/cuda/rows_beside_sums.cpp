#include "passes/cuda/rows_beside_sums.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/fragment_axes.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t bytes_of_all_banks = 128;

// What a loop over a matrix takes or stores at its own place, element by element.
struct Together {
  Buffers fragments, tiles;
};

bool has_conflicts(const Buffer& tile) {
  return tile.space == Space::shared && tile.rank() == 2 && tile.type.is_floating() &&
         tile.type.bits() == 16 && tile.extent(1) * tile.type.bytes() >= bytes_of_all_banks;
}

Together used_together(const For& loop) {
  Together result;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    const auto* store = as<Store>(s);
    const Access* access = load ? &load->from : store ? &store->to : nullptr;
    if (!access || !access->view.buffer->is_tile() || loop_axes(loop, *access) != std::vector<int>{0, 1})
      return;
    const Buffer& buffer = *access->view.buffer;
    if (buffer.space == Space::fragment) result.fragments.insert(&buffer);
    if (load && has_conflicts(buffer)) result.tiles.insert(&buffer);
  });
  return result;
}

}  // namespace

Buffers tiles_beside_sums(const Body& body) {
  Buffers sums, result;
  std::vector<Together> loops;
  for_each_stmt(body, [&](const Stmt& s) {
    if (const auto* gemm = as<Gemm>(s); gemm && is_on_tensor_cores(*gemm)) sums.insert(gemm->c.buffer.get());
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel && loop->index.size() == 2)
      loops.push_back(used_together(*loop));
  });
  for (std::size_t known = 0; known != sums.size();) {
    known = sums.size();
    for (const Together& loop : loops) {
      const bool has_sum = std::any_of(loop.fragments.begin(), loop.fragments.end(),
                                       [&](const Buffer* b) { return sums.contains(b); });
      if (!has_sum) continue;
      sums.insert(loop.fragments.begin(), loop.fragments.end());
      result.insert(loop.tiles.begin(), loop.tiles.end());
    }
  }
  return result;
}

Buffers tiles_with_conflicts(const Body& body) {
  Buffers result = turned_tiles(body);
  result.merge(tiles_beside_sums(body));
  return result;
}

}  // namespace tegula::passes
