// The copy engine: boxes of tensors to shared memory and back, and sums that are added in turn.
#pragma once
#include "rings.cuh"

namespace tg {

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
#define TG_LOAD_BOTH(dims, coordinates, ...)                                                            \
  asm volatile(                                                                                         \
      "cp.async.bulk.tensor." dims                                                                      \
      ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, " coordinates \
      "], [%2], %3;" ::"r"(shared_address(to)),                                                         \
      "l"(map), "r"(barrier), "h"(uint16_t(3)), __VA_ARGS__                                             \
      : "memory")
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b) {
  TG_LOAD_BOTH("2d", "{%4, %5}", "r"(a), "r"(b));
}
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c) {
  TG_LOAD_BOTH("3d", "{%4, %5, %6}", "r"(a), "r"(b), "r"(c));
}
TG_DEVICE void load_box_for_both(void* to, const TensorMap* map, uint32_t barrier, int a, int b, int c,
                                 int d) {
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
  int* word;             // that counts the turns, or null
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
    for (int i = 1; word && turns_of(word) < handover->turn && keeps_waiting(i, status, number); ++i) {}
    asm volatile("fence.proxy.async.global;" ::: "memory");
    add(handover->at);
    stores_read<0>();
    barrier_arrive(shared_address(&handover->empty));
    stores_done();
    if (word) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(word) : "memory");
  }
}

}  // namespace tg
