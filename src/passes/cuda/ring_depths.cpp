#include "passes/cuda/ring_depths.hpp"

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t shared_bytes = 225 * 1024;  // for rings and stores; the rest is for other tiles

constexpr std::int64_t other_bytes = 2 * 1024;  // that the system and small tiles take, of each of two blocks

std::int64_t bytes_of(const RingPlan& ring) {
  std::int64_t bytes = 0;
  for (const BufferPtr& tile : ring.tiles) bytes += slot_bytes(*tile);
  return bytes;
}

// Operands that the consumers make.
std::int64_t own_bytes(const Roles& roles) {
  std::int64_t result = 0;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (!declared || declared->tile->space != Space::shared || roles.ring_of(declared->tile.get()) >= 0)
      return;
    if (has_tensor_cores(declared->tile->type) && declared->tile->rank() == 2)
      result += slot_bytes(*declared->tile);
  });
  return result;
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
  const std::int64_t own = own_bytes(roles);
  std::int64_t fixed = own + (roles.stores ? staging_bytes(roles.consumers) : 0), moving = 0;
  for (const RingPlan& ring : roles.rings) (ring.in_loop ? moving : fixed) += bytes_of(ring);
  // One warp group leaves the tensor cores idle during its other work: two blocks, where two stages fit.
  const bool two = roles.consumers == 128 && fixed + 2 * moving <= shared_bytes / 2 - other_bytes;
  roles.blocks_per_processor = two ? 2 : 1;
  const std::int64_t bytes = two ? shared_bytes / 2 - other_bytes : shared_bytes;
  const std::int64_t most = moving > 0 ? std::max<std::int64_t>(1, (bytes - fixed) / moving) : 1;
  roles.spare_bytes = bytes - fixed;
  for (std::size_t r = 0; r < roles.rings.size(); ++r) {
    RingPlan& ring = roles.rings[r];
    ring.depth = static_cast<int>(std::min<std::int64_t>(asked[r], most));
    if (ring.in_loop) roles.spare_bytes -= ring.depth * bytes_of(ring);
  }
  if (own == 0) bring_ahead(roles);
}

}  // namespace tegula::passes
