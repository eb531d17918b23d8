#include "passes/cuda/ring_depths.hpp"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "ir/visit.hpp"
#include "passes/cuda/registers.hpp"
#include "passes/cuda/reuse_tiles.hpp"
#include "passes/cuda/role_reasons.hpp"
#include "passes/cuda/share_slots.hpp"
#include "passes/cuda/spread_blocks.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t shared_of_processor = 228 * 1024, shared_of_system = 1024;  // of each block
// Estimated bytes for rings and stores, and for the small tiles and system memory of each of several blocks.
constexpr std::int64_t estimated_bytes = 226 * 1024, small_bytes = 2 * 1024;
// Registers of fragments with which three blocks of five warps fit on a processor.
constexpr std::int64_t registers_of_three = 128;
constexpr int usual_stages = 4;  // where the loop asks for no number

int stages_of(const RingPlan& ring) {
  if (!ring.in_loop) return 1;
  return ring.asked > 0 ? ring.asked : usual_stages;
}

// Tiles in no ring: operands that the consumers make, and others of both roles.
struct OwnBytes {
  std::int64_t operands = 0, others = 0;
};

OwnBytes own_bytes(const Roles& roles) {
  OwnBytes result;
  std::unordered_set<const Buffer*> numbers;  // that tensor cores multiply as tf32
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    if (gemm && gemm->a.buffer->type == f32 && is_on_tensor_cores(*gemm))
      numbers.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
  });
  auto add = [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (!declared || declared->tile->space != Space::shared || roles.ring_of(declared->tile.get()) >= 0)
      return;
    const DType type = declared->tile->type;
    const bool has_cores = has_tensor_cores(type) || numbers.contains(declared->tile.get());
    const bool is_operand = type.is_floating() && has_cores && declared->tile->rank() == 2;
    (is_operand ? result.operands : result.others) += slot_bytes(*declared->tile);
  };
  for_each_stmt(roles.consumer, add);
  for_each_stmt(roles.producer, add);
  result.others = std::max<std::int64_t>(0, result.others - small_bytes);
  return result;
}

// Threads store in every step of a loop, and the copy engine nothing, for which the producer's other warps
// add.
bool stores_in_steps(const Roles& roles) {
  bool found = false;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined) return;
    for_each_stmt(loop->body, [&](const Stmt& inner) {
      const auto* store = as<Store>(inner);
      found |= store && !store->to.view.is_tile();
    });
  });
  return found && !roles.stores();
}

// Registers of a consumer for all fragments together.
std::int64_t fragment_registers(const Roles& roles) {
  std::int64_t bytes = 0;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (declared && declared->tile->space == Space::fragment)
      bytes += declared->tile->elements() * declared->tile->type.bytes();
  });
  return bytes / 4 / roles.consumers;
}

// Without the three warps of the producer that do not load. Others cover for a block that waits for its
// stores; where sums stay in registers from step to step, two blocks with more of them do better.
bool fits_three(const Roles& roles) {
  return roles.only_loads() && stores_in_steps(roles) && roles.fragment_registers <= registers_of_three;
}

// Shared memory for rings and stores, and for what a block has beside them.
struct Room {
  std::int64_t fixed = 0, moving = 0;  // without loops, and a slot of every ring of loops
  bool is_known = false;               // what is beside them

  std::int64_t bytes(int blocks) const {
    if (is_known) return shared_bytes_of(blocks);
    return blocks > 1 ? estimated_bytes / blocks - small_bytes : estimated_bytes;
  }
  bool has(int blocks, int stages) const { return fixed + stages * moving <= bytes(blocks); }
};

// At most as many blocks as the program asks for: one stage each, and products that ptxas takes.
int asked_blocks(const Roles& roles, const Room& room, const RegisterNeeds& needs, int asked) {
  for (int blocks = std::min(asked, 3); blocks > 1; --blocks) {
    if (blocks == 3 && !roles.only_loads()) continue;
    if (room.has(blocks, 1) && !too_large(needs, registers_of(roles, blocks))) return blocks;
  }
  return 1;
}

// One warp group leaves the tensor cores idle during its other work: as many blocks as have two stages, and
// registers for their fragments.
int blocks_of_processor(const Roles& roles, const Room& room, const RegisterNeeds& needs, int asked) {
  if (roles.consumers != 128) return 1;
  if (asked > 0) return asked_blocks(roles, room, needs, asked);
  const auto good = [&](int blocks) { return room.has(blocks, 2) && fit(needs, roles, blocks); };
  return good(3) && fits_three(roles) ? 3 : good(2) ? 2 : 1;
}

// A block that has a processor alone has more warps that widen or convert what consumers multiply, if its
// registers need not be shared out among groups of four warps.
int threads_of_producer(const Roles& roles, const RegisterNeeds& needs, int blocks) {
  if (blocks > 2) return one_warp;
  const bool widens = std::any_of(roles.transpositions.begin(), roles.transpositions.end(),
                                  [](const auto& own) { return !own.second.widened.empty(); });
  const int loaders = roles.looks_bytes_up() ? producer_threads : one_warp,
            many = widens ? loaders + widening_threads : converting_threads;
  const bool alone = blocks == 1 && roles.consumers == 128;
  return alone && (widens || converts(roles)) && fit(needs, registers_of(roles.consumers + many, 1))
             ? many
             : producer_threads;
}

// What a block reads once comes while the block before runs its last steps, where memory is left.
void bring_ahead(Roles& roles) {
  for (RingPlan& ring : roles.rings) {
    const std::int64_t more = slot_bytes(ring);
    if (ring.in_loop || ring.told || more > roles.spare_bytes) continue;
    ring.depth = 2;
    roles.spare_bytes -= more;
  }
}

bool multiplies(const Body& body) {
  bool result = false;
  for_each_stmt(body, [&](const Stmt& s) { result |= as<Gemm>(s) != nullptr; });
  return result;
}

}  // namespace

std::int64_t shared_bytes_of(int blocks) { return shared_of_processor / blocks - shared_of_system; }

int blocks_without_roles(const Grid& grid, const CudaTarget& target) {
  const int threads = grid.hints.threads;
  int blocks = std::max(1, grid.hints.blocks_per_processor);
  // What loops over elements have for a moment is counted generously: the program knows.
  if (!multiplies(grid.body)) return blocks;
  const RegisterNeeds needs = register_needs(grid.body, threads, target);
  while (blocks > 1 && !fit(needs, registers_of(threads_of_cta(grid.hints), blocks))) --blocks;
  return blocks;
}

namespace {

// With the rings as they are.
bool set_depths(Roles& roles, const GridHints& hints, const CudaTarget& target) {
  roles.fragment_registers = fragment_registers(roles);
  const RegisterNeeds needs = register_needs(roles.consumer, roles.consumers, target);
  roles.widest_product = needs.widest();
  const OwnBytes own = own_bytes(roles);
  Room room{roles.consumers / 128 * roles.store_bytes, 0, hints.other_shared_bytes >= 0};
  room.fixed += room.is_known ? hints.other_shared_bytes : own.operands + own.others;
  for (const RingPlan& ring : roles.rings) (ring.in_loop ? room.moving : room.fixed) += slot_bytes(ring);
  const int blocks = blocks_of_processor(roles, room, needs, hints.blocks_per_processor);
  roles.blocks_per_processor = blocks;
  roles.producers = threads_of_producer(roles, needs, blocks);
  const std::int64_t bytes = room.bytes(blocks);
  const std::int64_t most =
      room.moving > 0 ? std::max<std::int64_t>(1, (bytes - room.fixed) / room.moving) : 1;
  roles.spare_bytes = bytes - room.fixed;
  for (RingPlan& ring : roles.rings) {
    ring.depth = static_cast<int>(std::min<std::int64_t>(stages_of(ring), most));
    if (ring.in_loop) roles.spare_bytes -= ring.depth * slot_bytes(ring);
  }
  if (own.operands == 0) bring_ahead(roles);
  for (const RingPlan& ring : roles.rings) {
    if (!ring.in_loop) continue;
    roles.crowded |= ring.depth < ring.asked;
    note_stages(roles, ring);
  }
  const std::int64_t known = room.is_known ? 0 : own.operands + own.others;
  return room.fixed - known + room.moving <= shared_bytes_of(blocks);
}

// Of the loop with the fewest.
int least_slots(const Roles& roles) {
  int result = std::numeric_limits<int>::max();
  for (const RingPlan& ring : roles.rings)
    if (ring.in_loop) result = std::min(result, ring.depth);
  return result;
}

bool has_more_slots(const Roles& a, const Roles& b) {
  return a.blocks_per_processor >= b.blocks_per_processor && least_slots(a) > least_slots(b);
}

// Of some loop: fewer than it asks for, or than two.
bool has_few_slots(const Roles& roles) {
  return std::any_of(roles.rings.begin(), roles.rings.end(), [](const RingPlan& ring) {
    return ring.in_loop && ring.depth < (ring.asked > 0 ? ring.asked : 2);
  });
}

// With tiles of steps in place of others, if a loop that has too few slots gets more by that: no more tiles
// than that takes. The estimate decides, so that a second plan decides alike.
Roles with_room(const Roles& roles, GridHints hints, const CudaTarget& target) {
  hints.other_shared_bytes = -1;
  Roles before = roles;
  const bool fits = set_depths(before, hints, target);
  if (fits && !has_few_slots(before)) return roles;
  std::vector<TileReuse> which = tiles_to_reuse(roles);
  if (which.empty()) return roles;
  const auto with = [&](const std::vector<TileReuse>& tiles) {
    Roles result = roles;
    reuse_tiles(result, tiles);
    return result;
  };
  Roles all = with(which);
  if (!set_depths(all, hints, target) || (fits && !has_more_slots(all, before))) return roles;
  for (std::size_t i = 0; i < which.size();) {
    std::vector<TileReuse> others = which;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    Roles fewer = with(others);
    if (set_depths(fewer, hints, target) && fewer.blocks_per_processor >= all.blocks_per_processor &&
        least_slots(fewer) >= least_slots(all))
      which = std::move(others);
    else
      ++i;
  }
  return with(which);
}

}  // namespace

// Slots in place of those of other loops are for loops that have too few of their own: a loop that has enough
// begins its loads while the one before still multiplies.
bool choose_depths(Roles& roles, const GridHints& hints, const CudaTarget& target) {
  roles = with_room(roles, hints, target);
  Roles sharing = roles;
  const bool fits = set_depths(roles, hints, target);
  const bool has_few = !fits || has_few_slots(roles);
  if (!has_few || !share_slots(sharing) || !set_depths(sharing, hints, target)) return fits;
  if (!fits || has_more_slots(sharing, roles)) roles = std::move(sharing);
  return true;
}

bool has_room_beside(Roles roles, Roles before, const GridHints& hints, const CudaTarget& target) {
  if (!choose_depths(roles, hints, target)) return false;
  if (!choose_depths(before, hints, target)) return true;
  return roles.blocks_per_processor >= before.blocks_per_processor &&
         least_slots(roles) >= std::min(2, least_slots(before));
}

}  // namespace tegula::passes
