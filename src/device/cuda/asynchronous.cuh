// What Hopper has and C++ has not, one function each, so that another machine can take this header's place.
#pragma once
#include "kernel.cuh"

namespace tg {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

// ---- what threads wrote becomes visible to the copy engine and the tensor cores
TG_DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
TG_DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// ---- among threads of a block
// Whether this is the one thread of its warp, always the same, that does what one thread does: by this the
// compiler knows that what a transfer needs is the same for all threads that begin it; otherwise it prints a
// loop over those that differ.
TG_DEVICE bool elected() {
  uint32_t yes;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(yes));
  return yes;
}
// Zero, as a number of which the assembler does not know that all threads have the same. What is loaded from
// an address that it knows to be the same for all it moves to a uniform register, and may do so at once: a
// number that a loop reads a step ahead is then awaited in front of the products of the step before.
TG_DEVICE int zero_of_thread() {
  uint32_t own, below;
  asm volatile("mov.u32 %0, %%lanemask_eq;\nmov.u32 %1, %%lanemask_lt;" : "=r"(own), "=r"(below));
  return int(own & below);
}
template <int id, int threads>
TG_DEVICE void team_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}
// Warp groups take turns at the tensor cores: the barriers from `first` on, one per group.
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

// ---- barriers that count arrivals and bytes
TG_DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
TG_DEVICE void init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#ifdef TG_CHECKED
// Up to two microseconds, at every fourth time or so; the same for all lanes that come together.
TG_DEVICE void wait_by_lot() {
  const unsigned int lot = (unsigned(clock()) + threadIdx.x / 32 * 97 + blockIdx.x) * 2654435761u;
  if (lot >> 30 == 0) __nanosleep(lot % 2048);
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
  // Without a message: products would not run beside calls of functions.
  for (uint32_t i = 0; !barrier_try(barrier, parity); ++i)
    if (i == 1u << 22) asm volatile("trap;");
  wait_by_lot();
}
#else
TG_DEVICE void wait_by_lot() {}
TG_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::
          "r"(barrier),
      "r"(parity)
      : "memory");
}
#endif
TG_DEVICE void barrier_arrive(uint32_t barrier) {
  wait_by_lot();
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// One arrival, and bytes to come.
TG_DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
TG_DEVICE void barrier_complete(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
TG_DEVICE void barrier_arrive_behind_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
TG_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---- a block that is spread over the CTAs of a cluster
TG_DEVICE void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
TG_DEVICE void wait_for_cluster() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
// The shared memory of the running CTA.
template <int ctas>
TG_DEVICE unsigned char* memory_of_cta(unsigned char* memory) {
  return memory;
}
// All lanes of a warp have the same: one for each CTA stores it at that place there.
template <int ctas, class T, class V>
TG_DEVICE void store_in_all(T* p, V x) {
  const unsigned int cta = threadIdx.x % 32;
  uint64_t there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(cta % ctas));
  if (cta < ctas) store((T*)there, x);
}
// The same, and the barrier at that place there counts the bytes.
template <int ctas, class T>
TG_DEVICE void send_to_all(T* p, T x, uint32_t barrier) {
  static_assert(sizeof(T) == 4);
  const unsigned int cta = threadIdx.x % 32;
  if (cta < ctas)
    asm volatile(
        "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %2;\n"
        "mapa.shared::cluster.u32 counter, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, [counter];\n}" ::"r"(
            shared_address(p)),
        "r"(barrier), "r"(cta), "r"(bits_as<uint32_t>(x))
        : "memory");
}
// Says that reads by tensor cores are over: wider than the block it would become a fence of the whole GPU.
TG_DEVICE void barrier_arrive_in(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// ---- pieces of 16 bytes that this thread copies, or zeros where there is none; both sides are aligned. What
// looks up the next piece may run before: only the arrival orders memory.
TG_DEVICE void copy_async(void* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0));
}
// As many of them as exist, and zeros. Of a piece that exists only up to a point nothing after that point may
// be touched; the fence lets the arrival that follows order its elements, too.
template <class T>
TG_DEVICE void copy_bytes_async(T* to, const T* from, int bytes) {
  if (bytes == 0 || bytes == 16) return copy_async(to, from, bytes == 16);
#pragma unroll 1
  for (int i = 0; i < 16 / int(sizeof(T)); ++i) to[i] = i * int(sizeof(T)) < bytes ? from[i] : T{};
  __threadfence_block();
}
// The same of a piece that begins at a multiple of 8 or 4 bytes only.
template <int unit>
TG_DEVICE void copy_units_async(void* to, const void* from, int bytes) {
#pragma unroll
  for (int i = 0; i < 16; i += unit) {
    const int own = bytes - i < 0 ? 0 : bytes - i < unit ? bytes - i : unit;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address((char*)to + i)),
                 "l"((const char*)from + i), "n"(unit), "r"(own));
  }
}
// A piece that begins anywhere comes by way of registers; the fence lets the arrival that follows order it.
template <class T>
TG_DEVICE uint4 load_piece(const T* from, int bytes) {
  const auto pack = load_anywhere<16 / int(sizeof(T)), true>(from, bytes / int(sizeof(T)));
  return {pack.word[0], pack.word[1], pack.word[2], pack.word[3]};
}
TG_DEVICE void store_piece(void* to, uint4 piece) { *(uint4*)to = piece; }
TG_DEVICE void order_pieces() { __threadfence_block(); }
// One element of four bytes, or zero.
TG_DEVICE void copy_element_async(void* to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 4 : 0));
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

// All but the last `pending` groups of this thread have arrived where they were stored or added.
template <int pending>
TG_DEVICE void stores_done() {
  asm volatile("cp.async.bulk.wait_group %0;\nfence.proxy.async.global;" ::"n"(pending) : "memory");
}

// Four matrices of 8 x 8 elements of 16 bits, one row a thread, to shared memory; or their transposed.
TG_DEVICE void store_matrices(uint32_t row, const uint32_t* x) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
TG_DEVICE void store_turned_matrices(uint32_t row, const uint32_t* x) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
// The same with two matrices, whose rows the first half of the lanes name.
TG_DEVICE void store_two_turned_matrices(uint32_t row, const uint32_t* x) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(x[0]), "r"(x[1])
               : "memory");
}

// Rows of results, which their grid hardly reads again: they are the first to leave the L2 cache, where
// operands stay.
TG_DEVICE void store_passing(uint4* to, const uint4& words) { __stcs(to, words); }

// Adds one, two or four words of elements, each element atomically.
#define TG_ADD_WORDS(T, type, one)                                                                     \
  template <int count>                                                                                 \
  TG_DEVICE void add_words(T* to, const uint32_t* w) {                                                 \
    if constexpr (count == 4)                                                                          \
      asm volatile("red.global.add." one "v4." type " [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]),   \
                   "r"(w[1]), "r"(w[2]), "r"(w[3])                                                     \
                   : "memory");                                                                        \
    else if constexpr (count == 2)                                                                     \
      asm volatile("red.global.add." one "v2." type " [%0], {%1, %2};" ::"l"(to), "r"(w[0]), "r"(w[1]) \
                   : "memory");                                                                        \
    else                                                                                               \
      asm volatile("red.global.add." one type " [%0], %1;" ::"l"(to), "r"(w[0]) : "memory");           \
  }
TG_ADD_WORDS(float, "f32", "")
TG_ADD_WORDS(f16, "f16x2", "noftz.")
TG_ADD_WORDS(bf16, "bf16x2", "noftz.")
#undef TG_ADD_WORDS

// ---- counters of turns in global memory
TG_DEVICE int turns_of(const int* word) {
  int turns;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(turns) : "l"(word) : "memory");
  return turns;
}
TG_DEVICE void pass_on(int* word, int turns) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(word), "r"(turns) : "memory");
}

// ---- among grids of a call
// The next grid's blocks may take the places of those that end.
TG_DEVICE void let_next_grid_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
TG_DEVICE void wait_for_last_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// In a grid that runs beside the previous one, one block does not end before that grid does. The others make
// room.
TG_DEVICE void end_behind_last_grid() {
  if (blockIdx.x == 0) wait_for_last_grid();
}

// ---- products of warp groups
TG_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TG_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
TG_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Ties registers to this place of the program: uses stay after it, definitions in front.
template <int count>
TG_DEVICE void pin(float (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int count>
TG_DEVICE void pin(int (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
template <int count>
TG_DEVICE void pin(uint32_t (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

}  // namespace tg
