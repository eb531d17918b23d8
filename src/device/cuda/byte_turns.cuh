// Bytes of a tensor that threads turn where they copy them: rows become columns of a tile.
#pragma once
#include "memory.cuh"

namespace tg {

// Of a tile that is turned, what a thread takes: 16 bytes of each of four rows, for four bytes of each of 16
// columns.
struct TurnedPiece {
  int row, column;
  uint32_t order;  // its columns are stored in this order, so that threads of a warp do not meet in a bank
};
// A warp takes eight pieces below each other, four in each half of what a block of the swizzled tile has, and
// four side by side.
template <int rows>
TG_DEVICE TurnedPiece turned_piece(uint32_t thread) {
  constexpr uint32_t words = rows / 4,
                     half = (rows % 128 == 0  ? 32
                             : rows % 64 == 0 ? 16
                                              : 8) /
                            2,
                     parts = half / 4;
  const uint32_t lane = thread % 32, part = thread / 32 % (words / 8);
  const uint32_t word = part / parts * 2 * half + lane / 4 % 2 * half + part % parts * 4 + lane % 4;
  return {int(4 * word), int(thread / 32 / (words / 8) * 64 + lane / 8 * 16), lane / 8};
}
// Word e of the result is column e ^ order.
struct TurnedBytes {
  uint32_t word[16];
};
template <class T>
TG_DEVICE TurnedBytes turned_bytes(const Pack<T, 16> (&rows)[4], uint32_t order) {
  const uint32_t front = order & 2 ? 0x7362 : 0x5140, even = order & 1 ? 0x7632 : 0x5410;
  const uint32_t back = front ^ 0x2222, odd = even ^ 0x2222;
  TurnedBytes result;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const uint32_t a = rows[0].word[w], b = rows[1].word[w], c = rows[2].word[w], d = rows[3].word[w];
    const uint32_t ab[2] = {picked_bytes(a, b, front), picked_bytes(a, b, back)},
                   cd[2] = {picked_bytes(c, d, front), picked_bytes(c, d, back)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      result.word[4 * w + 2 * half] = picked_bytes(ab[half], cd[half], even);
      result.word[4 * w + 2 * half + 1] = picked_bytes(ab[half], cd[half], odd);
    }
  }
  return result;
}
// To a tile [columns, rows]; places of its rows differ from that of the first by the same bits everywhere.
// `block`: of a swizzled tile, else 0.
template <int columns, int rows, int block, class T>
TG_DEVICE void store_turned(T* tile, const Pack<T, 16> (&packs)[4], const TurnedPiece& piece) {
  const TurnedBytes turned = turned_bytes(packs, piece.order);
  if constexpr (block > 0) {
    const int first = swizzled<columns, block, 1>(piece.column + piece.order, piece.row);
#pragma unroll
    for (int e = 0; e < 16; ++e)
      *(uint32_t*)(tile + (first ^ swizzled<columns, block, 1>(e, 0))) = turned.word[e];
  } else {
#pragma unroll
    for (int e = 0; e < 16; ++e)
      *(uint32_t*)(tile + (piece.column + (e ^ piece.order)) * rows + piece.row) = turned.word[e];
  }
}

}  // namespace tg
