// Instructions that the language has no word for, one function each. Everything else here is plain C++, so
// that another machine can take this header's place.
#pragma once
#pragma nv_diag_suppress 177  // not every kernel uses every function
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;

#define TG_DEVICE static __device__ __forceinline__
#define TG_DEVICE_MEMBER __device__ __forceinline__

namespace tg {

// ---- clocks
TG_DEVICE int64_t device_clock() { return clock64(); }
TG_DEVICE int64_t device_nanoseconds() {
  int64_t r;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(r));
  return r;
}

// ---- conversions, to nearest even
TG_DEVICE uint16_t bits_f16(float x) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
TG_DEVICE float from_f16(uint16_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
TG_DEVICE uint16_t bits_bf16(float x) {
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
TG_DEVICE float from_bf16(uint16_t x) { return __uint_as_float(uint32_t(x) << 16); }

// Two values in a word, the first in the low half.
TG_DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TG_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// The nearest number of tf32, as bits of f32.
TG_DEVICE uint32_t bits_tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

// The line to the second-level cache.
TG_DEVICE void prefetch(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }
// To global memory, at a multiple of 16 bytes. Of four stores of words the compiler makes one in some places
// only.
TG_DEVICE void store_16_bytes(void* to, const uint32_t* words) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}
// Loads and stores stay on the side on which they are written: the assembler moves loads of global memory
// behind stores to shared memory, but nothing past a meeting of the lanes that are here.
TG_DEVICE void keep_order() { __syncwarp(__activemask()); }

// Zero, which no compiler knows: the product of two integers in a row is even. What is found with it for one
// product of a step is found again for the next one, instead of being kept.
template <int product>
TG_DEVICE int nothing(int step) {
  int x;
  asm volatile("{\n.reg .s32 next;\nadd.s32 next, %1, 1;\nmul.lo.s32 next, next, %1;\nand.b32 %0, next, 1;\n}"
               : "=r"(x)
               : "r"(step + product));
  return x;
}
// Both words as they are: nothing is computed with all 64 bits.
TG_DEVICE uint64_t of_words(uint32_t low, uint32_t high) {
  uint64_t x;
  asm("mov.b64 %0, {%1, %2};" : "=l"(x) : "r"(low), "r"(high));
  return x;
}
// (x & mask) ^ pattern, and with |, as one instruction, whatever of it is constant.
TG_DEVICE uint32_t masked_xor(uint32_t x, uint32_t mask, uint32_t pattern) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(x), "r"(mask), "r"(pattern));
  return r;
}
TG_DEVICE uint32_t masked_or(uint32_t x, uint32_t mask, uint32_t pattern) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(x), "r"(mask), "r"(pattern));
  return r;
}

// The upper halves of two words, that of the first in the low half.
TG_DEVICE uint32_t upper_halves(uint32_t low, uint32_t high) { return __byte_perm(low, high, 0x7632); }
// Both products of words of two numbers, each rounded once.
TG_DEVICE uint32_t times_bf16(uint32_t x, uint32_t y) {
  uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(0x80008000u));
  return r;
}

// Results below 2^-126 are 0.
TG_DEVICE float exp2_approximate(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// To one unit in the last place. Of what is beyond 2^126, and results there, nothing and infinity remain.
TG_DEVICE float reciprocal_approximate(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// ---- products of a warp: c [16, 8] += a [16, 16] b [16, 8]
TG_DEVICE void mma_bf16(float* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TG_DEVICE void mma_f16(float* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same with sums of f16, in words of two.
TG_DEVICE void mma_f16(uint32_t* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
      : "+r"(c[0]), "+r"(c[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// From CUDA 12.5 on the assembler asks for metadata whose positions are said to ascend.
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1205
#define TG_SPARSE_MMA "mma.sp::ordered_metadata"
#else
#define TG_SPARSE_MMA "mma.sp"
#endif
// c [16, 8] += a [16, 32] b [32, 8] with two values of each four of a; `selector` says which pair of each
// four threads has the metadata
#define TG_SPARSE_PRODUCT(name, type)                                                              \
  template <int selector>                                                                          \
  TG_DEVICE void name(float* c, const uint32_t* a, const uint32_t* b, uint32_t metadata) {         \
    asm(TG_SPARSE_MMA                                                                              \
        ".sync.aligned.m16n8k32.row.col.f32." type "." type                                        \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),  \
          "r"(metadata), "n"(selector));                                                           \
  }
TG_SPARSE_PRODUCT(mma_sparse_bf16, "bf16")
TG_SPARSE_PRODUCT(mma_sparse_f16, "f16")
#undef TG_SPARSE_PRODUCT
// c [16, 8] += a [16, 8] b [8, 8] of tf32
TG_DEVICE void mma_tf32(float* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// c [16, 8] += a [16, 32] b [32, 8] of integers
TG_DEVICE void mma_s8(int* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TG_DEVICE void mma_u8(int* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- the bytes of two words, the first one the lower, that the four lowest digits of the selector name
TG_DEVICE uint32_t picked_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  return __byte_perm(x, y, selector);
}

// ---- four matrices of 8 x 8 elements from shared memory; a lane gives the address of a row of 16 bytes and
// gets two neighbours of a row (transposed: of a column) of each matrix
TG_DEVICE uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
TG_DEVICE void load_matrices(uint32_t* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
TG_DEVICE void load_matrices_transposed(uint32_t* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// ---- copies that this thread begins and awaits in groups: `bytes` at multiples of that, of which the first
// `count` exist and the others become zeros. What looks up the next copy may run before.
template <int bytes>
TG_DEVICE void begin_copy(void* to, const void* from, int count) {
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(count));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from),
                 "n"(bytes), "r"(count));
}
TG_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last `pending` groups of this thread are there.
template <int pending>
TG_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- barriers
TG_DEVICE void block_sync() { __syncthreads(); }
TG_DEVICE void warp_sync() { __syncwarp(); }
TG_DEVICE void warp_group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

}  // namespace tg
