// Which metadata threads give to sparse products, and products by mma.sp on one warp.
#pragma once
#include "mma.cuh"

namespace tg {

// The 16 bits of metadata, of 64 rows and 64 columns of a sparse operand, that are half `half` of the word of
// a thread: a row, and the first of two of its eight bytes. Facts of the PTX ISA (matrix fragments of
// wgmma.mma_async.sp), as CUTLASS's ELayout_64x32 and ELayout_64x64 have them. In 16 bits threads 0 and 1 of
// each four have those of the first instruction of 32 columns, and threads 2 and 3 (selector 1) of the next.
struct MetadataPlace {
  int row, byte;
};
template <int element_bytes>
TG_DEVICE MetadataPlace metadata_place(int thread, int half) {
  const int row = thread / 32 % 4 * 16 + thread / 4 % 8;
  if (element_bytes == 2) return {row + 8 * half, thread % 4 * 2};
  return {row + thread % 2 * 8, thread / 2 % 2 * 4 + half * 2};
}

// Four bits 0, as what is outside of a tensor reads, are positions 0 and 1: bits 0100.
TG_DEVICE uint32_t with_positions(uint32_t word) {
  const uint32_t some = word | word >> 1 | word >> 2 | word >> 3;
  return word | (~some & 0x11111111u) << 2;
}

// The word of this thread for 64 rows from `row` on and columns 64 · step to 64 · step + 63. at(row, column)
// is a byte of the tile.
template <int element_bytes, class At>
TG_DEVICE uint32_t metadata_word(int row, int step, const At& at) {
  uint32_t word = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const MetadataPlace place = metadata_place<element_bytes>(threadIdx.x, half);
    word |= uint32_t(*(const uint16_t*)at(row + place.row, step * 8 + place.byte)) << 16 * half;
  }
  return with_positions(word);
}

// The same of a warp's 16 rows from `row` on: products of warps have the places of the first warp of a group.
template <class At>
TG_DEVICE uint32_t metadata_word_of_warp(int row, int step, const At& at) {
  const int lane = threadIdx.x % 32;
  uint32_t word = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const MetadataPlace place = metadata_place<2>(lane, half);
    word |= uint32_t(*(const uint16_t*)at(row + place.row, step * 8 + place.byte)) << 16 * half;
  }
  return with_positions(word);
}

// c += a b for tiles_m x tiles_n blocks of 16 x 8, where a has two values of each four along k; steps of 64
// along k have a word of metadata.
template <class T, int selector>
TG_DEVICE void mma_sparse_step(float* c, const uint32_t* a, const uint32_t* b, uint32_t metadata) {
  if constexpr (is_same<T, f16>)
    mma_sparse_f16<selector>(c, a, b, metadata);
  else
    mma_sparse_bf16<selector>(c, a, b, metadata);
}
template <class T, int tiles_m, int tiles_n, int selector, int R, class A, class B>
TG_DEVICE void mma_sparse_half(float (&c)[R], int row, int step_m, int column, int k, const A& a, const B& b,
                               const uint32_t* words) {
  uint32_t ra[tiles_m][4];
#pragma unroll
  for (int m = 0; m < tiles_m; ++m) a.load_a(ra[m], row + m * step_m, k / 2);
#pragma unroll
  for (int n = 0; n < tiles_n; n += 2) {
    uint32_t low[4], high[4];  // if their number is odd, what is loaded beyond the last is not used
    b.load_b(low, k, column + n * 8);
    b.load_b(high, k + 16, column + n * 8);
#pragma unroll
    for (int e = 0; e < 2 && n + e < tiles_n; ++e) {
      const uint32_t rb[4] = {low[2 * e], low[2 * e + 1], high[2 * e], high[2 * e + 1]};
#pragma unroll
      for (int m = 0; m < tiles_m; ++m)
        mma_sparse_step<T, selector>(c + (m * tiles_n + n + e) * 4, ra[m], rb, words[m]);
    }
  }
}
template <class T, int tiles_m, int tiles_n, int steps, int step_m, int R, class A, class B, class At>
TG_DEVICE void mma_sparse(float (&c)[R], int row, int column, const A& a, const B& b, const At& metadata) {
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    uint32_t words[tiles_m];
#pragma unroll
    for (int m = 0; m < tiles_m; ++m) words[m] = metadata_word_of_warp(row + m * step_m, step, metadata);
    mma_sparse_half<T, tiles_m, tiles_n, 0>(c, row, step_m, column, 64 * step, a, b, words);
    mma_sparse_half<T, tiles_m, tiles_n, 1>(c, row, step_m, column, 64 * step + 32, a, b, words);
  }
}

}  // namespace tg
