// What warps of a block with roles share: barriers that count bytes, rings of slots, turns of blocks.
#pragma once
#include "asynchronous.cuh"

namespace tg {

// What is the same for all threads of a warp, in a form that shows it: it stays in uniform registers.
TG_DEVICE int uniform(int x) { return __shfl_sync(~0u, x, 0); }
// ---- sums of a block that is spread over a cluster: warps send their parts to all of its CTAs
template <int places>
struct Meetings {
  uint32_t barriers, number = 0;

  __device__ __forceinline__ explicit Meetings(void* p) : barriers(shared_address(p)) {
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int i = 0; i < places; ++i) barrier_init(barriers + 8 * i, 1);
    init_fence();
  }
  __device__ __forceinline__ int place() const { return number % places; }
  __device__ __forceinline__ uint32_t barrier() const { return barriers + 8 * place(); }
  __device__ __forceinline__ void expect(uint32_t bytes) const {
    if (threadIdx.x == 0) barrier_expect(barrier(), bytes);
  }
  __device__ __forceinline__ void wait() const { barrier_wait(barrier(), number / places % 2); }
  __device__ __forceinline__ void next() { ++number; }
};

// ---- rings: `depth` slots, each with a barrier that it is full and one that it is empty again
// Where a role stands in rings that it advances together.
template <int slots>
struct Cursor {
  uint32_t slot = 0, phase = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == slots) {
      slot = 0;
      phase ^= 1;
    }
  }
};
template <int slots>
struct Ring {
  uint32_t barriers;  // in shared memory
  const Cursor<slots>& at;

  __device__ __forceinline__ Ring(const void* p, const Cursor<slots>& at)
      : barriers(shared_address(p)), at(at) {}
  __device__ __forceinline__ uint32_t full() const { return barriers + 8 * at.slot; }
  __device__ __forceinline__ uint32_t empty() const { return barriers + 8 * (slots + at.slot); }
  __device__ __forceinline__ uint32_t last_full() const {
    return barriers + 8 * (at.slot == 0 ? slots - 1 : at.slot - 1);
  }
  __device__ __forceinline__ uint32_t last_empty() const {
    return barriers + 8 * (slots + (at.slot == 0 ? slots - 1 : at.slot - 1));
  }
};

// Who says that a warp has read a slot, and that threads have filled one. One thread is enough, since the
// others have met it before; racecheck knows only of what a thread says itself.
#ifdef TG_EVERY_THREAD_ARRIVES
constexpr int releasing_lanes = 32, filling_threads = 128;
#else
constexpr int releasing_lanes = 1, filling_threads = 1;
#endif

template <int slots>
TG_DEVICE void init_ring(const void* barriers, uint32_t fills, uint32_t releases) {
#pragma unroll
  for (int i = 0; i < slots; ++i) {
    barrier_init(shared_address(barriers) + 8 * i, fills);
    barrier_init(shared_address(barriers) + 8 * (slots + i), releases * releasing_lanes);
  }
}
template <class R>
TG_DEVICE void wait_full(const R& ring) {
  barrier_wait(ring.full(), ring.at.phase);
}
// For the slot of the next step.
template <class R>
TG_DEVICE void wait_full_next(const R& ring) {
  auto next = ring.at;
  next.advance();
  barrier_wait(ring.barriers + 8 * next.slot, next.phase);
}
// For the slot of the step before; before the first one nothing is to come.
template <class R>
TG_DEVICE void wait_full_last(const R& ring) {
  const bool wraps = ring.at.slot == 0;
  barrier_wait(ring.last_full(), ring.at.phase ^ uint32_t(wraps));
}
template <class R>
TG_DEVICE void acquire(const R& ring) {
  barrier_wait(ring.empty(), ring.at.phase ^ 1);
}
template <class R>
TG_DEVICE void release(const R& ring) {
  if (threadIdx.x % 32 < releasing_lanes) barrier_arrive(ring.empty());
}
// A ring as its release sees it when values in registers have arrived: the address of the barrier takes a bit
// of each that is in `none`, which is zero.
struct LateBarrier {
  uint32_t barrier;
  __device__ __forceinline__ uint32_t empty() const { return barrier; }
};
template <class R, class... T>
TG_DEVICE LateBarrier behind(const R& ring, uint32_t none, const T&... values) {
  uint32_t barrier = ring.empty();
  ((barrier |= bits_as<uint32_t>(values) & none), ...);
  return {barrier};
}
template <class R>
TG_DEVICE void release_last(const R& ring) {
  if (threadIdx.x % 32 < releasing_lanes) barrier_arrive(ring.last_empty());
}
// ---- slots that warps fill, for the one thread that loads or for their own next step
template <int slots>
TG_DEVICE void init_told(const void* barriers, uint32_t warps) {
#pragma unroll
  for (int i = 0; i < slots; ++i) {
    barrier_init(shared_address(barriers) + 8 * i, warps * releasing_lanes);
    barrier_init(shared_address(barriers) + 8 * (slots + i), 1);
  }
}
template <class R>
TG_DEVICE void tell(const R& ring) {
  if (threadIdx.x % 32 < releasing_lanes) barrier_arrive(ring.full());
}
// ---- pairs of blocks, each with the barriers of both
template <class Barrier>
TG_DEVICE void arrive_in_both(Barrier barrier) {
#pragma unroll
  for (int i = 0; i < 2 * releasing_lanes; i += 32) {
    const int at = threadIdx.x % 32 + i;
    if (at < 2 * releasing_lanes) barrier_arrive_in(barrier, at % 2);
  }
}
template <class R>
TG_DEVICE void release_in_both(const R& ring) {
  arrive_in_both(ring.empty());
}
template <class R>
TG_DEVICE void release_last_in_both(const R& ring) {
  arrive_in_both(ring.last_empty());
}
// The one arrival of a full barrier, and bytes to come.
template <class R>
TG_DEVICE void expect(const R& ring, uint32_t bytes) {
  barrier_expect(ring.full(), bytes);
}
// Bytes that threads brought: they have met before, and an arrival follows.
template <class R>
TG_DEVICE void complete(const R& ring, uint32_t bytes) {
  barrier_complete(ring.full(), bytes);
}
// That arrival.
template <class R>
TG_DEVICE void filled(const R& ring, int thread) {
  if (thread < filling_threads) barrier_arrive(ring.full());
}
// A warp has made its pieces of a tile, and its lanes have met.
template <class R>
TG_DEVICE void transposed(const R& ring) {
  if (threadIdx.x % 32 < releasing_lanes) barrier_arrive(ring.full());
}

// Arrives when all that this thread has copied so far is there.
template <class R>
TG_DEVICE void arrive_with_copies(const R& ring) {
  barrier_arrive_behind_copies(ring.full());
}

// ---- blocks in turns
// The number of a block that nobody has taken yet; the first gridDim.x are taken.
TG_DEVICE uint32_t next_block(int* counters) { return gridDim.x + uint32_t(atomicAdd(counters, 1)); }
TG_DEVICE void last_block_resets(int* counters) {
  if (atomicAdd(counters + 1, 1) != int(gridDim.x) - 1) return;
  counters[0] = 0;
  counters[1] = 0;
}

}  // namespace tg
