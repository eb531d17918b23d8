// Products of 16-bit floats by mma.sync m16n8k16, on one warp.
#pragma once
#include "memory.cuh"

namespace tg {

// Two values as elements in a word, the first in the low half; products of such words.
template <class T>
TG_DEVICE uint32_t pair(float low, float high) {
  if constexpr (is_same<T, f16>)
    return pack_f16(low, high);
  else
    return pack_bf16(low, high);
}
template <class T>
TG_DEVICE void mma(float* c, const uint32_t* a, const uint32_t* b) {
  if constexpr (is_same<T, f16>)
    mma_f16(c, a, b);
  else
    mma_bf16(c, a, b);
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
