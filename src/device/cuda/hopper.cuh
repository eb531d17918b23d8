// What only sm_90a has: barriers that count bytes, the copy engine, products of warp groups.
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
// Bytes that threads brought: they have fenced and met before.
template <class R>
TG_DEVICE void complete(const R& ring, uint32_t bytes) {
  __threadfence_block();
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
// ---- the copy engine: a box of a tensor, its fastest dimension first, to shared memory
#define TG_LOAD(dims, coordinates, ...)                                                       \
  asm volatile("cp.async.bulk.tensor." dims                                                   \
               ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " coordinates \
               "], [%2];" ::"r"(shared_address(to)),                                          \
               "l"(map), "r"(barrier), __VA_ARGS__                                            \
               : "memory")
TG_DEVICE void load_box(void* to, const TensorMap* map, uint32_t barrier, int a) {
  TG_LOAD("1d", "{%3}", "r"(a));
}
TG_DEVICE void load_box(void* to, const TensorMap* map, uint32_t barrier, int a, int b) {
  TG_LOAD("2d", "{%3, %4}", "r"(a), "r"(b));
}
TG_DEVICE void load_box(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c) {
  TG_LOAD("3d", "{%3, %4, %5}", "r"(a), "r"(b), "r"(c));
}
TG_DEVICE void load_box(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c, int d) {
  TG_LOAD("4d", "{%3, %4, %5, %6}", "r"(a), "r"(b), "r"(c), "r"(d));
}
TG_DEVICE void load_box(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c, int d, int e) {
  TG_LOAD("5d", "{%3, %4, %5, %6, %7}", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e));
}
#undef TG_LOAD

// ---- to the shared memory of both blocks, at the same place and barrier of each
#define TG_LOAD_BOTH(dims, coordinates, ...)                                                         \
  asm volatile("cp.async.bulk.tensor." dims                                                          \
               ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, " \
               coordinates "], [%2], %3;" ::"r"(shared_address(to)),                                 \
               "l"(map), "r"(barrier), "h"(uint16_t(3)), __VA_ARGS__                                 \
               : "memory")
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b) {
  TG_LOAD_BOTH("2d", "{%4, %5}", "r"(a), "r"(b));
}
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c) {
  TG_LOAD_BOTH("3d", "{%4, %5, %6}", "r"(a), "r"(b), "r"(c));
}
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c, int d) {
  TG_LOAD_BOTH("4d", "{%4, %5, %6, %7}", "r"(a), "r"(b), "r"(c), "r"(d));
}
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c, int d,
                                 int e) {
  TG_LOAD_BOTH("5d", "{%4, %5, %6, %7, %8}", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e));
}
#undef TG_LOAD_BOTH

// ---- and back, stored or added; groups of stores belong to the thread that issues them
#define TG_STORE(instruction, dims, coordinates, ...)                       \
  asm volatile(instruction dims ".global.shared::cta." coordinates          \
                                "\ncp.async.bulk.commit_group;" ::"l"(map), \
               "r"(shared_address(from)), __VA_ARGS__                       \
               : "memory")
#define TG_STORES(name, instruction, kind)                                                                 \
  TG_DEVICE void name(const TensorMap* map, const void* from, int a) {                                     \
    TG_STORE(instruction, "1d", kind " [%0, {%2}], [%1];", "r"(a));                                        \
  }                                                                                                        \
  TG_DEVICE void name(const TensorMap* map, const void* from, int a, int b) {                              \
    TG_STORE(instruction, "2d", kind " [%0, {%2, %3}], [%1];", "r"(a), "r"(b));                            \
  }                                                                                                        \
  TG_DEVICE void name(const TensorMap* map, const void* from, int a, int b, int c) {                       \
    TG_STORE(instruction, "3d", kind " [%0, {%2, %3, %4}], [%1];", "r"(a), "r"(b), "r"(c));                \
  }                                                                                                        \
  TG_DEVICE void name(const TensorMap* map, const void* from, int a, int b, int c, int d) {                \
    TG_STORE(instruction, "4d", kind " [%0, {%2, %3, %4, %5}], [%1];", "r"(a), "r"(b), "r"(c), "r"(d));    \
  }                                                                                                        \
  TG_DEVICE void name(const TensorMap* map, const void* from, int a, int b, int c, int d, int e) {         \
    TG_STORE(instruction, "5d", kind " [%0, {%2, %3, %4, %5, %6}], [%1];", "r"(a), "r"(b), "r"(c), "r"(d), \
             "r"(e));                                                                                      \
  }
TG_STORES(store_box, "cp.async.bulk.tensor.", "bulk_group")
TG_STORES(add_box, "cp.reduce.async.bulk.tensor.", "add.bulk_group")
#undef TG_STORES
#undef TG_STORE
// All but the last `pending` groups have been read from shared memory.
template <int pending>
TG_DEVICE void stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Of four rows of words that the threads of a quad hold, one word each a row: thread i writes row i, 16
// bytes.
template <class T>
TG_DEVICE void store_quad(T* to, const float* x, int i, bool exists) {
  uint32_t w[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) w[r] = pair<T>(x[4 * r], x[4 * r + 1]);
  const bool high = i & 2, odd = i & 1;
  const uint32_t a = shuffled(high ? w[0] : w[2], 2), b = shuffled(high ? w[1] : w[3], 2);
  const uint32_t u[4] = {high ? a : w[0], high ? b : w[1], high ? w[2] : a, high ? w[3] : b};
  const uint32_t c = shuffled(odd ? u[0] : u[1], 1), d = shuffled(odd ? u[2] : u[3], 1);
  const uint4 words = {odd ? c : u[0], odd ? u[1] : c, odd ? d : u[2], odd ? u[3] : d};
  if (exists) *(uint4*)to = words;
}

// 64 columns of 16 rows that a warp holds, as pairs of elements or to be converted to such; `exchange` is the
// number of the row among eight.
template <class T>
TG_DEVICE void stage_words(T* row, const uint32_t* x, int exchange) {
  const uint32_t at = shared_address(row);
#pragma unroll
  for (int i = 0; i < 4; ++i, x += 4)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     at + ((i * 32 + threadIdx.x % 32 / 16 * 16) ^ (exchange * 16))),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
template <class T>
TG_DEVICE void stage_words(T* row, const float* x, int exchange) {
  uint32_t words[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) words[i] = pair<T>(x[2 * i], x[2 * i + 1]);
  stage_words(row, words, exchange);
}
template <class T>
TG_DEVICE void stage_words_of(T* to, const float* x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  stage_words(to + (16 * warp + lane % 16) * 64, x, lane % 8);
}
// A row of f32 is twice as long. Threads of odd rows begin two pieces further, so that sixteen of them meet
// all banks.
TG_DEVICE void stage_words_of(float* to, const float* x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = lane / 4, turn = row % 2 * 2;
  float* const at = to + (16 * warp + row) * 32 + lane % 2 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float* const piece = at + ((2 * (i ^ turn) + lane % 4 / 2) ^ row) * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float *own = x + 4 * i + 2 * half, *other = x + 4 * (i ^ 2) + 2 * half;
      *(float2*)(piece + half * 8 * 32) =
          turn ? make_float2(other[0], other[1]) : make_float2(own[0], own[1]);
    }
  }
}
// Blocks of 64 rows and 128 bytes of columns of a wgmma's sum that this warp group holds go to buffers in the
// order of the copy engine, when all but the last `pending` stores have left theirs.
template <int pending>
TG_DEVICE void begin_staging() {
  if (threadIdx.x % 128 == 0) stores_read<pending>();
  warp_group_sync(threadIdx.x / 128);
}
TG_DEVICE void end_staging() {
  fence_async_shared();
  warp_group_sync(threadIdx.x / 128);
}

// All groups of this thread have arrived where they were stored or added.
TG_DEVICE void stores_done() {
  asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async.global;" ::: "memory");
}

// ---- sums that a warp group leaves, in its buffers, to a thread that waits for the turn and adds them
struct Handover {
  uint64_t full, empty;  // barriers
  int* word;             // that counts the turns
  int turn;              // -1: nothing comes any more
  int at[5];             // where the first box goes
};
// As the warp group that hands over sees it.
struct Giver {
  Handover* handover;
  uint32_t phase = 1;

  __device__ __forceinline__ explicit Giver(void* p) : handover((Handover*)p) {}
  // Until the buffers are free.
  __device__ __forceinline__ void wait() const { barrier_wait(shared_address(&handover->empty), phase); }
  template <class... At>
  __device__ __forceinline__ void give(int* word, int turn, At... at) {
    const int list[] = {at...};
    handover->word = word, handover->turn = turn;
#pragma unroll
    for (int i = 0; i < int(sizeof...(at)); ++i) handover->at[i] = list[i];
    barrier_arrive(shared_address(&handover->full));
    phase ^= 1;
  }
  __device__ __forceinline__ void end() {
    wait();
    give(nullptr, -1, 0);
  }
};
TG_DEVICE void init_handover(void* p) {
  Handover* const handover = (Handover*)p;
  barrier_init(shared_address(&handover->full), 1);
  barrier_init(shared_address(&handover->empty), 1);
}
TG_DEVICE int turns_of(const int* word) {
  int turns;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(turns) : "l"(word) : "memory");
  return turns;
}
// By the thread that adds: `add` issues the boxes. Without full fences, which take as long as a step.
template <class Add>
TG_DEVICE void take_turns(void* p, unsigned long long* status, unsigned int number, const Add& add) {
  Handover* const handover = (Handover*)p;
  for (uint32_t phase = 0;; phase ^= 1) {
    barrier_wait(shared_address(&handover->full), phase);
    if (handover->turn < 0) return;
    int* const word = handover->word;
    for (int i = 1; turns_of(word) < handover->turn && keeps_waiting(i, status, number); ++i) {}
    asm volatile("fence.proxy.async.global;" ::: "memory");
    add(handover->at);
    stores_read<0>();
    barrier_arrive(shared_address(&handover->empty));
    stores_done();
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(word) : "memory");
  }
}

// ---- products of warp groups
TG_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TG_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
TG_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Ties registers to this place of the program: uses stay behind it, definitions in front.
template <int count>
TG_DEVICE void pin(float (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// Keeps what follows behind the first `until` registers, which are not negative, so that the condition never
// holds: the compiler lifts a bare wait over arithmetic, but not over a side effect.
template <int until, int count>
TG_DEVICE void hold(const float (&r)[count]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < until; ++i) sum += r[i];
  if (sum < -1.0f) barrier_arrive(0);
}

// The place of an operand [rows, …] in shared memory whose blocks are `columns` columns wide: see TileOrder.
template <int rows, int columns>
TG_DEVICE uint64_t operand(const void* tile) {
  const uint32_t address = shared_address(tile), next_block = rows * columns * 2, next_rows = 8 * columns * 2;
  const uint32_t swizzle = columns == 64 ? 1 : columns == 32 ? 2 : 3;
  const uint64_t low = (address & 0x3ffff) >> 4 | (next_block >> 4) << 16,
                 high = next_rows >> 4 | swizzle << 30;
  return low | high << 32;
}
// How far, in units of the operand, row and column lie from its begin; both at pieces that it can begin at.
template <int rows, int columns>
TG_DEVICE constexpr uint32_t operand_step(int row, int column) {
  return ((column / columns * rows + row) * columns + column % columns) * 2 / 16;
}

}  // namespace tg
