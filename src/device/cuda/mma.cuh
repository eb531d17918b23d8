// Products of 16-bit floats by mma.sync m16n8k16, on one warp. Operands are objects that give the words of a
// block: load_a of [16, 16] at (row, k), load_b of two of [16, 8] at (k, column).
#pragma once
#include "memory.cuh"

namespace tg {

// One of the two elements of a word; products of such words.
template <class T>
TG_DEVICE float element(uint32_t pair, int i) {
  if constexpr (is_same<T, f16>)
    return load((const f16*)&pair + i);
  else
    return __uint_as_float(i == 0 ? pair << 16 : pair & 0xffff0000u);
}
template <class T>
TG_DEVICE void mma(float* c, const uint32_t* a, const uint32_t* b) {
  if constexpr (is_same<T, f16>)
    mma_f16(c, a, b);
  else
    mma_bf16(c, a, b);
}

// Any matrix, by a function that gives two neighbours along k.
template <class F>
struct Pairs {
  F at;

  TG_DEVICE_MEMBER void load_a(uint32_t* r, int row, int k) const {
    const int lane = threadIdx.x % 32, i = row + lane / 4, x = k + lane % 4 * 2;
    r[0] = at(i, x), r[1] = at(i + 8, x), r[2] = at(i, x + 8), r[3] = at(i + 8, x + 8);
  }
  TG_DEVICE_MEMBER void load_b(uint32_t* r, int k, int column) const {
    const int lane = threadIdx.x % 32, x = k + lane % 4 * 2, j = column + lane / 4;
    r[0] = at(x, j), r[1] = at(x + 8, j), r[2] = at(x, j + 8), r[3] = at(x + 8, j + 8);
  }
};
template <class F>
TG_DEVICE Pairs<F> pairs(F at) {
  return {at};
}

// A swizzled tile whose rows are rows of the operand, or (`transposed`) its columns.
template <class T, int rows, int columns, bool transposed>
struct Swizzled {
  const T* tile;

  TG_DEVICE_MEMBER void load_a(uint32_t* r, int row, int k) const {
    const int lane = threadIdx.x % 32, low = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    if constexpr (transposed)
      load_matrices_transposed(r, tile + swizzled<rows, columns>(k + second + low, row + first));
    else
      load_matrices(r, tile + swizzled<rows, columns>(row + first + low, k + second));
  }
  TG_DEVICE_MEMBER void load_b(uint32_t* r, int k, int column) const {
    const int lane = threadIdx.x % 32, low = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    if constexpr (transposed)
      load_matrices(r, tile + swizzled<rows, columns>(column + second + low, k + first));
    else
      load_matrices_transposed(r, tile + swizzled<rows, columns>(k + first + low, column + second));
  }
};

// One step along k, with a in registers.
template <class T, int tiles_m, int tiles_n, class B>
TG_DEVICE void mma_step(float* c, const uint32_t (*a)[4], int k, int column, const B& b) {
#pragma unroll
  for (int n = 0; n < tiles_n; n += 2) {
    // Of an odd number, what is loaded beyond the last is not used.
    uint32_t rb[4];
    b.load_b(rb, k, column + n * 8);
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) {
      mma<T>(c + (m * tiles_n + n) * 4, a[m], rb);
      if (n + 1 < tiles_n) mma<T>(c + (m * tiles_n + n + 1) * 4, a[m], rb + 2);
    }
  }
}

// c += a b for tiles_m x tiles_n blocks of 16 x 8 that begin at (row, column), blocks `step_m` rows apart.
template <class T, int tiles_m, int tiles_n, int steps, int step_m, int R, class A, class B>
TG_DEVICE void mma_shared(float (&c)[R], int row, int column, const A& a, const B& b) {
  constexpr int ahead = tiles_m == 1 ? steps : 2;  // of one block of rows, all products may be ahead
#pragma unroll ahead
  for (int k = 0; k < 16 * steps; k += 16) {
    uint32_t ra[tiles_m][4];
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) a.load_a(ra[m], row + m * step_m, k);
    mma_step<T, tiles_m, tiles_n>(c, ra, k, column, b);
  }
}

// The same with a in registers, in the order in which c lies.
template <class T, int tiles_m, int tiles_n, int steps, int R, int S, class B>
TG_DEVICE void mma_registers(float (&c)[R], const float (&a)[S], int column, const B& b) {
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    uint32_t ra[tiles_m][4];
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) {
      const float* x = a + (m * steps + k) * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) ra[m][i] = pair<T>(x[2 * i], x[2 * i + 1]);
    }
    mma_step<T, tiles_m, tiles_n>(c, ra, 16 * k, column, b);
  }
}

// The same with words of two elements.
template <class T, int tiles_m, int tiles_n, int steps, int R, int S, class B>
TG_DEVICE void mma_registers(float (&c)[R], const uint32_t (&a)[S], int column, const B& b) {
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    uint32_t ra[tiles_m][4];
#pragma unroll
    for (int i = 0; i < tiles_m * 4; ++i) ra[i / 4][i % 4] = a[(i / 4 * steps + k) * 4 + i % 4];
    mma_step<T, tiles_m, tiles_n>(c, ra, 16 * k, column, b);
  }
}

}  // namespace tg
