// Products of 16-bit floats by mma.sync m16n8k16, on one warp.
#pragma once
#include "memory.cuh"

namespace tg {

// Two values as 16-bit floats in a word, the first in the low half.
template <class T>
TG_DEVICE uint32_t pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pair<bf16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
__device__ __forceinline__ uint32_t pair<f16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

template <class T>
TG_DEVICE void mma(float* c, const uint32_t* a, const uint32_t* b);
template <>
__device__ __forceinline__ void mma<bf16>(float* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void mma<f16>(float* c, const uint32_t* a, const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int tiles_n, class B>
TG_DEVICE void operand_b(uint32_t (&r)[tiles_n][2], int k, int column, B b) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < tiles_n; ++n) {
    r[n][0] = b(k + lane % 4 * 2, column + n * 8 + lane / 4);
    r[n][1] = b(k + lane % 4 * 2 + 8, column + n * 8 + lane / 4);
  }
}

// c += a b for tiles_m x tiles_n blocks of 16 x 8 that begin at (row, column), blocks `step_m` rows apart.
// a(i, k) and b(k, j) give two neighbours along k.
template <class T, int tiles_m, int tiles_n, int steps, int step_m, int R, class A, class B>
TG_DEVICE void mma_shared(float (&c)[R], int row, int column, A a, B b) {
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < 16 * steps; k += 16) {
    uint32_t rb[tiles_n][2];
    operand_b<tiles_n>(rb, k, column, b);
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) {
      const int i = row + m * step_m + lane / 4, x = k + lane % 4 * 2;
      const uint32_t ra[4] = {a(i, x), a(i + 8, x), a(i, x + 8), a(i + 8, x + 8)};
#pragma unroll
      for (int n = 0; n < tiles_n; ++n) mma<T>(c + (m * tiles_n + n) * 4, ra, rb[n]);
    }
  }
}

// The same with a in registers, in the order in which c lies.
template <class T, int tiles_m, int tiles_n, int steps, int R, int S, class B>
TG_DEVICE void mma_registers(float (&c)[R], const float (&a)[S], int column, B b) {
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    uint32_t rb[tiles_n][2];
    operand_b<tiles_n>(rb, 16 * k, column, b);
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) {
      const float* x = a + (m * steps + k) * 8;
      const uint32_t ra[4] = {pair<T>(x[0], x[1]), pair<T>(x[2], x[3]), pair<T>(x[4], x[5]),
                              pair<T>(x[6], x[7])};
#pragma unroll
      for (int n = 0; n < tiles_n; ++n) mma<T>(c + (m * tiles_n + n) * 4, ra, rb[n]);
    }
  }
}

}  // namespace tg
