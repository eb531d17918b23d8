#include "passes/cuda/ring_depths.hpp"

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t shared_bytes = 226 * 1024;  // for rings and stores; the rest is for small tiles
constexpr std::int64_t small_bytes = 2 * 1024;     // that they and the system take, of each of several blocks
// Of fragments, with which three blocks of five warps fit a processor.
constexpr std::int64_t registers_of_three = 128;

std::int64_t bytes_of(const RingPlan& ring) {
  std::int64_t bytes = 0;
  for (const BufferPtr& tile : ring.tiles) bytes += slot_bytes(*tile);
  return bytes;
}

// Tiles in no ring: operands that the consumers make, and others of both roles.
struct OwnBytes {
  std::int64_t operands = 0, others = 0;
};

OwnBytes own_bytes(const Roles& roles) {
  OwnBytes result;
  auto add = [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (!declared || declared->tile->space != Space::shared || roles.ring_of(declared->tile.get()) >= 0)
      return;
    const bool is_operand = has_tensor_cores(declared->tile->type) && declared->tile->rank() == 2;
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

// Of a consumer, for all fragments together.
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
  return roles.one_loader && stores_in_steps(roles) && roles.fragment_registers <= registers_of_three;
}

// One warp group leaves the tensor cores idle during its other work: as many blocks as have two stages.
int blocks_of_processor(const Roles& roles, std::int64_t fixed, std::int64_t moving) {
  auto fit = [&](int blocks) { return fixed + 2 * moving <= shared_bytes / blocks - small_bytes; };
  if (roles.consumers != 128) return 1;
  return fit(3) && fits_three(roles) ? 3 : fit(2) ? 2 : 1;
}

// What a block reads once comes while the block before runs its last steps, where memory is left.
void bring_ahead(Roles& roles) {
  for (RingPlan& ring : roles.rings) {
    const std::int64_t more = bytes_of(ring);
    if (ring.in_loop || more > roles.spare_bytes) continue;
    ring.depth = 2;
    roles.spare_bytes -= more;
  }
}

}  // namespace

void choose_depths(Roles& roles, const std::vector<int>& asked) {
  roles.fragment_registers = fragment_registers(roles);
  const OwnBytes own = own_bytes(roles);
  std::int64_t fixed = own.operands + own.others + roles.consumers / 128 * roles.store_bytes, moving = 0;
  for (const RingPlan& ring : roles.rings) (ring.in_loop ? moving : fixed) += bytes_of(ring);
  const int blocks = blocks_of_processor(roles, fixed, moving);
  roles.blocks_per_processor = blocks;
  if (blocks > 2) roles.producers = one_warp;
  const std::int64_t bytes = blocks > 1 ? shared_bytes / blocks - small_bytes : shared_bytes;
  const std::int64_t most = moving > 0 ? std::max<std::int64_t>(1, (bytes - fixed) / moving) : 1;
  roles.spare_bytes = bytes - fixed;
  for (std::size_t r = 0; r < roles.rings.size(); ++r) {
    RingPlan& ring = roles.rings[r];
    ring.depth = static_cast<int>(std::min<std::int64_t>(asked[r], most));
    if (ring.in_loop) roles.spare_bytes -= ring.depth * bytes_of(ring);
  }
  if (own.operands == 0) bring_ahead(roles);
}

}  // namespace tegula::passes
