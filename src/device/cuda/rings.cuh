// What warps of a block with roles share: barriers that count bytes, rings of slots, turns of blocks.
#pragma once
#include "kernel.cuh"

namespace tg {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

TG_DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// What is the same for all threads of a warp, in a form that shows it: it stays in uniform registers.
TG_DEVICE int uniform(int x) { return __shfl_sync(~0u, x, 0); }
template <int id, int threads>
TG_DEVICE void team_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}
// Of warp groups at the tensor cores: the barriers from `first` on, one a group.
template <int first, int groups>
TG_DEVICE void take_turn(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(first + group) : "memory");
}
template <int first, int groups>
TG_DEVICE void give_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(first + (group + 1 == groups ? 0 : group + 1)) : "memory");
}
template <int count>
TG_DEVICE void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
TG_DEVICE void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

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
  __device__ __forceinline__ uint32_t last_empty() const {
    return barriers + 8 * (slots + (at.slot == 0 ? slots - 1 : at.slot - 1));
  }
};

TG_DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
template <int slots>
TG_DEVICE void init_ring(const void* barriers, uint32_t fills, uint32_t releases) {
#pragma unroll
  for (int i = 0; i < slots; ++i) {
    barrier_init(shared_address(barriers) + 8 * i, fills);
    barrier_init(shared_address(barriers) + 8 * (slots + i), releases);
  }
}
TG_DEVICE void init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TG_DEVICE void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
TG_DEVICE bool barrier_try(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}
TG_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
#ifdef TG_SPIN_LIMIT  // debug builds: a hang becomes a failed launch that says where
  for (uint32_t i = 0; !barrier_try(barrier, parity); ++i) {
    if (i == TG_SPIN_LIMIT) {
      printf("stuck: block %d thread %d barrier %u parity %u\n", blockIdx.x, threadIdx.x, barrier, parity);
      asm volatile("trap;");
    }
  }
#else
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::
          "r"(barrier),
      "r"(parity)
      : "memory");
#endif
}
template <class R>
TG_DEVICE void wait_full(const R& ring) {
  barrier_wait(ring.full(), ring.at.phase);
}
template <class R>
TG_DEVICE void acquire(const R& ring) {
  barrier_wait(ring.empty(), ring.at.phase ^ 1);
}
// By one thread of every warp.
template <class R>
TG_DEVICE void release(const R& ring) {
  if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
}
template <class R>
TG_DEVICE void release_last(const R& ring) {
  if (threadIdx.x % 32 == 0) barrier_arrive(ring.last_empty());
}
// ---- pairs of blocks, each with the barriers of both
TG_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// Says that reads by tensor cores are over: wider than the block it would become a fence of the whole GPU.
TG_DEVICE void barrier_arrive_in(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
// By two threads of every warp.
template <class R>
TG_DEVICE void release_in_both(const R& ring) {
  if (threadIdx.x % 32 < 2) barrier_arrive_in(ring.empty(), threadIdx.x % 32);
}
template <class R>
TG_DEVICE void release_last_in_both(const R& ring) {
  if (threadIdx.x % 32 < 2) barrier_arrive_in(ring.last_empty(), threadIdx.x % 32);
}
// The one arrival of a full barrier, and bytes to come.
template <class R>
TG_DEVICE void expect(const R& ring, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(ring.full()), "r"(bytes)
               : "memory");
}
// Bytes that threads brought: they have met before, and an arrival follows.
template <class R>
TG_DEVICE void complete(const R& ring, uint32_t bytes) {
  asm volatile("mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [%0], %1;" ::"r"(ring.full()),
               "r"(bytes)
               : "memory");
}

// ---- pieces of 16 bytes that this thread copies, or zeros where there is none; both sides are aligned. What
// looks up the next piece may run before: only the arrival orders memory.
TG_DEVICE void copy_async(void* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0));
}
// Arrives when all that this thread has copied so far is there.
template <class R>
TG_DEVICE void arrive_with_copies(const R& ring) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(ring.full()) : "memory");
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
