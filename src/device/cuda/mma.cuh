// Products by mma.sync on one warp: of 16-bit floats m16n8k16, of tf32 m16n8k8, of integers of 8 bits m16n8k32.
// Operands are objects that give the words of a block, of neighbours along k: load_a of 16 rows at (row, k), load_b
// of two times 8 columns at (k, column), with 32 bytes of each along k.
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
struct tf32 {
  uint32_t bits;
};
template <class T>
constexpr int inner_extent = is_same<T, tf32> ? 8 : 32 / int(sizeof(T));  // of a product
template <class T, class Sum>
TG_DEVICE void mma(Sum* c, const uint32_t* a, const uint32_t* b) {
  if constexpr (is_same<T, int8_t>)
    mma_s8(c, a, b);
  else if constexpr (is_same<T, uint8_t>)
    mma_u8(c, a, b);
  else if constexpr (is_same<T, tf32>)
    mma_tf32(c, a, b);
  else if constexpr (is_same<T, f16>)
    mma_f16(c, a, b);
  else
    mma_bf16(c, a, b);
}

// Any matrix, by a function that gives a word of so many neighbours along k.
template <int each, class F>
struct Words {
  F at;

  TG_DEVICE_MEMBER void load_a(uint32_t* r, int row, int k) const {
    const int lane = threadIdx.x % 32, i = row + lane / 4, x = k + lane % 4 * each;
    r[0] = at(i, x), r[1] = at(i + 8, x), r[2] = at(i, x + 4 * each), r[3] = at(i + 8, x + 4 * each);
  }
  TG_DEVICE_MEMBER void load_b(uint32_t* r, int k, int column) const {
    const int lane = threadIdx.x % 32, x = k + lane % 4 * each, j = column + lane / 4;
    r[0] = at(x, j), r[1] = at(x + 4 * each, j), r[2] = at(x, j + 8), r[3] = at(x + 4 * each, j + 8);
  }
};
template <class F>
TG_DEVICE Words<1, F> numbers(F at) {
  return {at};
}
template <class F>
TG_DEVICE Words<2, F> pairs(F at) {
  return {at};
}
template <class F>
TG_DEVICE Words<4, F> fours(F at) {
  return {at};
}
TG_DEVICE uint32_t four(int a, int b, int c, int d) {
  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | uint32_t(d) << 24;
}

// A swizzled tile whose rows run along k, of f32 that is rounded or of integers: a word is two elements of 16
// bits to the instruction that loads matrices.
template <class T, int rows, int columns>
struct SwizzledWords {
  const T* tile;
  static constexpr int piece = 16 / int(sizeof(T));

  TG_DEVICE_MEMBER void load(uint32_t* r, int row, int k) const {
    load_matrices(r, tile + swizzled<rows, columns, int(sizeof(T))>(row, k));
    if constexpr (is_same<T, float>) {
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = bits_tf32(__uint_as_float(r[i]));
    }
  }
  TG_DEVICE_MEMBER void load_a(uint32_t* r, int row, int k) const {
    const int lane = threadIdx.x % 32;
    load(r, row + lane / 8 % 2 * 8 + lane % 8, k + lane / 16 * piece);
  }
  TG_DEVICE_MEMBER void load_b(uint32_t* r, int k, int column) const {
    const int lane = threadIdx.x % 32;
    load(r, column + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * piece);
  }
};

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

// Registers of a thread for the sums of 16 rows and 8 columns: words hold two.
template <class Sum>
constexpr int sum_registers = is_same<Sum, uint32_t> ? 2 : 4;

// One step along k, with a in registers.
template <class T, int tiles_m, int tiles_n, class Sum, class B>
TG_DEVICE void mma_step(Sum* c, const uint32_t (*a)[4], int k, int column, const B& b) {
#pragma unroll
  for (int n = 0; n < tiles_n; n += 2) {
    // If their number is odd, what is loaded beyond the last is not used.
    uint32_t rb[4];
    b.load_b(rb, k, column + n * 8);
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) {
      mma<T>(c + (m * tiles_n + n) * sum_registers<Sum>, a[m], rb);
      if (n + 1 < tiles_n) mma<T>(c + (m * tiles_n + n + 1) * sum_registers<Sum>, a[m], rb + 2);
    }
  }
}

// c += a b for tiles_m x tiles_n blocks of 16 x 8 that begin at (row, column), blocks `step_m` rows apart.
template <class T, int tiles_m, int tiles_n, int steps, int step_m, class Sum, int R, class A, class B>
TG_DEVICE void mma_shared(Sum (&c)[R], int row, int column, const A& a, const B& b) {
  constexpr int ahead = tiles_m == 1 ? steps : 2;  // of one block of rows, all products may be ahead
#pragma unroll ahead
  for (int k = 0; k < inner_extent<T> * steps; k += inner_extent<T>) {
    uint32_t ra[tiles_m][4];
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) a.load_a(ra[m], row + m * step_m, k);
    mma_step<T, tiles_m, tiles_n>(c, ra, k, column, b);
  }
}

// The same with a in registers, in the order in which c is.
template <class T, int tiles_m, int tiles_n, int steps, class Sum, int R, int S, class B>
TG_DEVICE void mma_registers(Sum (&c)[R], const float (&a)[S], int column, const B& b) {
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
template <class T, int tiles_m, int tiles_n, int steps, class Sum, int R, int S, class B>
TG_DEVICE void mma_registers(Sum (&c)[R], const uint32_t (&a)[S], int column, const B& b) {
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    uint32_t ra[tiles_m][4];
#pragma unroll
    for (int i = 0; i < tiles_m * 4; ++i) ra[i / 4][i % 4] = a[(i / 4 * steps + k) * 4 + i % 4];
    mma_step<T, tiles_m, tiles_n>(c, ra, 16 * k, column, b);
  }
}

}  // namespace tg
