// The schedule of a block with roles: what each role does, with all synchronisation between them, with the
// tensor cores and around their stores. Barriers among the consumers alone, around other shared memory, are
// not part of it.
#pragma once
#include "passes/cuda/step_parts.hpp"
#include "schedule/schedule.hpp"

namespace tegula::passes {

// Registers of a thread after they were shared out; 0: as launched.
struct RegisterShares {
  int launch = 0, consumer = 0, producer = 0;
};
inline constexpr int consumer_barrier = 14, producer_barrier = 15;
// Of the threads of a warp group among themselves, and of messages to one: each the first of several.
inline constexpr int group_barrier = 1, message_barrier = 5;
inline constexpr int product_barrier = 8;  // and the next: one for each warp group in ping-pong
inline constexpr int staging_barrier = 1;  // and the next ones: of each warp group's threads
inline constexpr int tile_slots = 2;       // blocks on their way
inline constexpr int tile_bytes = 16;      // a block's indices, and whether there is one

// Sixteenths of the exponentials that run under a product, before it is awaited; fewer where their sums are
// formed as well. Measured: with two warp groups 4 lost 3 % and 12 lost 2 %; three cover for each other.
inline int early_exponentials(int consumers, bool sums) { return consumers == 384 ? 4 : sums ? 6 : 8; }
// Measured in attention: three warp groups in ping-pong gain 5 to 8 %, two nothing.
inline bool ping_pong_pays(int consumers) { return consumers == 384; }

// Whether the producer computes what it fills tiles with.
bool converts(const Roles& roles);
RegisterShares register_shares(const Roles& roles);
// Warps to which the producer hands the numbers of blocks.
int tile_readers(const Roles& roles);
// At the barrier that a slot is empty: by warps of all blocks that fill it.
int empty_arrivals(const RingPlan& ring, const Roles& roles);
// At the barrier that a slot is full: of who expects bytes, and once more after what threads brought.
int full_arrivals(const RingPlan& ring, const Roles& roles);

// Ring r of the schedule is ring r of the roles; after these come that of blocks, where a dynamic
// scheduler deals them out, and that of sums which consumers hand over to the third role. Events hold the
// statements they come from; operations and gemms of the consumers, loads of the producer.
schedule::Schedule build_schedule(const std::string& name, const Roles& roles, const ConsumerProgram& program,
                                  const StepParts& parts);

}  // namespace tegula::passes
