// Which metadata the threads of a warp group give to sparse products.
#pragma once
#include "kernel.cuh"

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

}  // namespace tg
