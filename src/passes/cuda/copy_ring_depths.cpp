#include "passes/cuda/copy_ring_depths.hpp"

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/registers.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/spread_blocks.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// On their way to a processor: memory gives one some 36 bytes a nanosecond and answers after about one
// thousand.
constexpr std::int64_t bytes_on_their_way = 48 * 1024;
constexpr int most_chosen = 8;
// With products, whose steps last longer than a copy, two are on their way while one is used.
constexpr int least_with_products = 3;
constexpr int good_threads = 256;  // of a processor: two warps for each of its four parts
constexpr std::int64_t registers_of_all = 64 * 1024, threads_of_processor = 2048;
constexpr std::int64_t registers_beside_fragments = 40;
constexpr int most_blocks = 16;

// The text for other GPUs than Hopper's runs on some whose blocks have 99 KiB: what only comes early may not
// keep it from them.
constexpr std::int64_t bytes_of_any_block = 99 * 1024;

// Shared memory for slots.
class SlotRoom {
 public:
  SlotRoom(const BesideSlots& beside, const Grid& grid, const CudaTarget& target) : target_(target) {
    const std::int64_t known = grid.hints.other_shared_bytes;
    others_ = beside.slots + (known >= 0 ? known : beside.tiles);
  }

  // That fit, with so many blocks on a processor.
  int slots(std::int64_t step_bytes, int blocks) const {
    return static_cast<int>(std::max<std::int64_t>(0, (bytes_of_block(blocks) - others_) / step_bytes));
  }
  // Blocks per processor, at most `most`, if each has so many bytes of slots.
  int blocks(std::int64_t bytes, int most) const {
    while (most > 1 && others_ + bytes > shared_bytes_of(most)) --most;
    return most;
  }

 private:
  std::int64_t bytes_of_block(int blocks) const {
    const std::int64_t bytes = shared_bytes_of(blocks);
    return target_.has_wgmma() ? bytes : std::min(bytes, bytes_of_any_block);
  }

  const CudaTarget& target_;
  std::int64_t others_ = 0;
};

// Blocks that registers let share a processor.
int blocks_by_registers(const Grid& grid, const CudaTarget& target) {
  const int threads = threads_of_cta(grid.hints);
  const std::int64_t each =
      register_needs(grid.body, grid.hints.threads, target).live + registers_beside_fragments;
  const std::int64_t blocks = std::min(registers_of_all / (each * threads), threads_of_processor / threads);
  return static_cast<int>(std::clamp<std::int64_t>(blocks, 1, most_blocks));
}

bool has_products(const For& loop) {
  bool found = false;
  for_each_stmt(loop.body, [&](const Stmt& s) { found |= as<Gemm>(s) != nullptr; });
  return found;
}

std::int64_t most_steps(const For& loop) {
  if (!is_constant(loop.begin[0]) || !is_constant(loop.end[0])) return most_chosen * most_chosen;
  return constant_value(loop.end[0]) - constant_value(loop.begin[0]);
}

}  // namespace

int copy_ring_room(std::int64_t step_bytes, const BesideSlots& beside, const Grid& grid,
                   const CudaTarget& target) {
  return SlotRoom(beside, grid, target)
      .slots(step_bytes / grid.hints.cluster, blocks_without_roles(grid, target));
}

int copy_ring_depth(const For& loop, std::int64_t block_bytes, const BesideSlots& beside, const Grid& grid,
                    const CudaTarget& target) {
  const SlotRoom room(beside, grid, target);
  const std::int64_t step_bytes = block_bytes / grid.hints.cluster;  // of a CTA
  int depth = loop.stages;
  if (depth == 0) {
    const int blocks = blocks_by_registers(grid, target),
              least = has_products(loop) ? least_with_products : 2;
    const std::int64_t ahead = (bytes_on_their_way + blocks * step_bytes - 1) / (blocks * step_bytes);
    depth = static_cast<int>(std::clamp<std::int64_t>(1 + ahead, least, most_chosen));
    depth = std::max(least, std::min(depth, room.slots(step_bytes, blocks)));
    // Blocks that share a processor cover for each other, too.
    const int enough = std::min(room.blocks(step_bytes, blocks), (good_threads - 1) / grid.hints.threads + 1);
    while (depth > 1 && room.blocks(depth * step_bytes, blocks) < enough) --depth;
  }
  depth = std::min(depth, room.slots(step_bytes, blocks_without_roles(grid, target)));
  return static_cast<int>(std::clamp<std::int64_t>(most_steps(loop), 0, depth));
}

}  // namespace tegula::passes
