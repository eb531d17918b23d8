// Device header of the target texts: one thin function per Hopper instruction (sm_90a), nothing more.
// No includes, so that NVRTC and nvcc take it alike. Shared memory is addressed by 32-bit shared::cta
// addresses.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define DEV static __device__ __forceinline__

struct alignas(64) TensorMap {
  u64 opaque[16];
};  // the driver's CUtensorMap, passed as __grid_constant__

DEV u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ---- mbarriers
DEV void mbar_init(u32 bar, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
DEV void mbar_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void mbar_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// The same barrier in CTA `rank` of the cluster. Default (CTA) scope: what it protects are operands of wgmma,
// whose reads have retired; a cluster-scope release would drain every store of the thread first.
DEV void mbar_arrive_at(u32 bar, u32 rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar),
      "r"(rank)
      : "memory");
}
DEV void mbar_expect(u32 bar, u32 bytes) {  // one arrival, and `bytes` more to come from the copy engine
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEV bool mbar_try(u32 bar, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done;
}
DEV void mbar_wait(u32 bar, u32 parity) {
#ifdef SPIN_LIMIT  // debug builds: a hang becomes a failed launch that says where
  for (u32 i = 0; !mbar_try(bar, parity); ++i)
    if (i == SPIN_LIMIT) {
      printf("stuck: block %d thread %d barrier %u parity %u\n", blockIdx.x, threadIdx.x, bar, parity);
      asm volatile("trap;");
    }
#else
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::
          "r"(bar),
      "r"(parity)
      : "memory");
#endif
}

// ---- copy engine: tensor loads and stores, plain bulk copies, reductions
DEV void tma_prefetch(const TensorMap* m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }
DEV void tma_load_2d(u32 dst, const TensorMap* m, u32 bar, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];" ::"r"(dst),
      "l"(m), "r"(bar), "r"(c0), "r"(c1)
      : "memory");
}
// To the same place in every CTA of `mask`; completes on the same barrier of each.
DEV void tma_load_2d_multicast(u32 dst, const TensorMap* m, u32 bar, int c0, int c1, u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
      "l"(m), "r"(bar), "r"(c0), "r"(c1), "h"(mask)
      : "memory");
}
DEV void tma_load_4d(u32 dst, const TensorMap* m, u32 bar, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
      "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
DEV void tma_store_2d(const TensorMap* m, u32 src, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(m),
               "r"(src), "r"(c0), "r"(c1)
               : "memory");
}
DEV void tma_store_4d(const TensorMap* m, u32 src, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(m),
               "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
DEV void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(bar)
      : "memory");
}
DEV void bulk_store(void* dst, u32 src, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
               : "memory");
}
DEV void bulk_add_f32(float* dst, u32 src, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
               "r"(src), "r"(bytes)
               : "memory");
}
DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
DEV void bulk_wait_read() {  // all but the last N groups have read their shared memory
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
template <int N>
DEV void bulk_wait() {  // all but the last N groups are complete
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
DEV void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// ---- turns between CTAs
DEV u32 load_acquire(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
DEV void store_release(u32* p, u32 v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// ---- barriers among threads, clusters, register reallocation
DEV void named_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void named_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
DEV u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
template <int N>
DEV void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
DEV void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- arithmetic
DEV float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV u32 pack_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEV float low_bf16(u32 x) { return __uint_as_float(x << 16); }
DEV float high_bf16(u32 x) { return __uint_as_float(x & 0xffff0000u); }

// ---- shared memory by ordinary instructions
DEV void stmatrix_x4(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
DEV void stmatrix_x4_trans(u32 addr, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
DEV void store_shared(u32 addr, int v) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(addr), "r"(v) : "memory");
}
DEV int load_shared(u32 addr) {
  int v;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
  return v;
}
DEV void store_shared_s32x4(u32 addr, int a, int b, int c, int d) {
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
DEV int4 load_shared_s32x4(u32 addr) {
  int4 v;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(addr)
               : "memory");
  return v;
}
DEV void store_shared_f32x4(u32 addr, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
DEV float2 load_shared_f32x2(u32 addr) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
  return v;
}

// ---- wgmma m64nNk16, bf16 x bf16 -> f32
// Descriptor of an operand in 128-byte swizzle. K-major: next_k_rows unused, next_rows = 1024 (the next 8
// rows).
// MN-major: next_columns = distance of the next 64 columns, next_rows = 1024 (the next 8 k). Advance: + bytes
// / 16.
DEV u64 wgmma_operand(u32 addr, u32 next_columns, u32 next_rows) {
  u64 low = (addr & 0x3ffff) >> 4 | (next_columns >> 4) << 16;
  u64 high = next_rows >> 4 | 1u << 30;
  return low | high << 32;
}
DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DEV void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Ties registers to this place in program order (emits nothing): uses stay behind it, definitions in front.
template <int N>
DEV void pin(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
DEV void pin(u32 (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// Operand lists: ACC_n names registers 0..n-1 in the instruction, REGS_n lists them for the compiler.
#define ACC_32                                                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, "                                                                                                \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ACC_40 ACC_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ACC_64                                                                                             \
  ACC_40                                                                                                   \
  ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
  "%60, "                                                                                                  \
  "%61, %62, %63"
#define ACC_96                                                                                             \
  ACC_64                                                                                                   \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, "                                                                                                  \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define ACC_128                                                                                          \
  ACC_96                                                                                                 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, "                                                                                               \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define REGS_8(c, d, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define REGS_32(c, d) REGS_8(c, d, 0), REGS_8(c, d, 8), REGS_8(c, d, 16), REGS_8(c, d, 24)
#define REGS_40(c, d) REGS_32(c, d), REGS_8(c, d, 32)
#define REGS_64(c, d) REGS_40(c, d), REGS_8(c, d, 40), REGS_8(c, d, 48), REGS_8(c, d, 56)
#define REGS_96(c, d) REGS_64(c, d), REGS_8(c, d, 64), REGS_8(c, d, 72), REGS_8(c, d, 80), REGS_8(c, d, 88)
#define REGS_128(c, d) \
  REGS_96(c, d), REGS_8(c, d, 96), REGS_8(c, d, 104), REGS_8(c, d, 112), REGS_8(c, d, 120)

// For accumulators of R registers (N = 2 R); p0.. are the numbers of the operands behind them.
//   wgmma_zero  d = a b    (both from shared memory)     wgmma_if  d = (add ? d : 0) + a b
//   wgmma       d += a b                                  wgmma_a   d += a b, a in four registers
// A_MN, B_MN: operand is MN-major (its non-contracted dimension is contiguous).
#define WGMMA_SHAPE(N, R, p0, p1, p2, p3, p4, p5)                                                          \
  template <int A_MN, int B_MN>                                                                            \
  DEV void wgmma_zero(float(&d)[R], u64 a, u64 b) {                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" ACC_##R                      \
                 "}, %" #p0 ", %" #p1 ", 0, 1, 1, %" #p2 ", %" #p3 ";"                                     \
                 : REGS_##R("=f", d)                                                                       \
                 : "l"(a), "l"(b), "n"(A_MN), "n"(B_MN));                                                  \
  }                                                                                                        \
  template <int A_MN, int B_MN>                                                                            \
  DEV void wgmma(float(&d)[R], u64 a, u64 b) {                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" ACC_##R                      \
                 "}, %" #p0 ", %" #p1 ", 1, 1, 1, %" #p2 ", %" #p3 ";"                                     \
                 : REGS_##R("+f", d)                                                                       \
                 : "l"(a), "l"(b), "n"(A_MN), "n"(B_MN));                                                  \
  }                                                                                                        \
  template <int A_MN, int B_MN>                                                                            \
  DEV void wgmma_if(float(&d)[R], u64 a, u64 b, int add) {                                                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #p4 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
                 "k16.f32.bf16.bf16 {" ACC_##R "}, %" #p0 ", %" #p1 ", add, 1, 1, %" #p2 ", %" #p3 ";\n}"  \
                 : REGS_##R("+f", d)                                                                       \
                 : "l"(a), "l"(b), "n"(A_MN), "n"(B_MN), "r"(add));                                        \
  }                                                                                                        \
  template <int B_MN>                                                                                      \
  DEV void wgmma_a(float(&d)[R], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" ACC_##R                      \
                 "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", 1, 1, 1, %" #p5 ";"               \
                 : REGS_##R("+f", d)                                                                       \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(B_MN));                                 \
  }

WGMMA_SHAPE(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA_SHAPE(80, 40, 40, 41, 42, 43, 44, 45)
WGMMA_SHAPE(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA_SHAPE(192, 96, 96, 97, 98, 99, 100, 101)
WGMMA_SHAPE(256, 128, 128, 129, 130, 131, 132, 133)
