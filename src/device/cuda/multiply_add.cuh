// Products without tensor cores. Each thread has lines of both operands, rows of A and columns of B; operands
// are objects that give four elements along k of all of a thread's lines.
#pragma once
#include "memory.cuh"

namespace tg {

// The place of an element of a tile in blocks of columns, see TileOrder, or row by row.
template <class T, int rows, int columns, int block>
TG_DEVICE int place_in_tile(int row, int column) {
  if constexpr (block == 0)
    return row * columns + column;
  else
    return swizzled<rows, block, int(sizeof(T))>(row, column);
}

// Lines are rows of the tile, `step` apart.
template <class T, int rows, int columns, int block, int step, int together>
struct LinesAlongK {
  const T* tile;
  int first;

  template <class Sum, int count>
  TG_DEVICE_MEMBER void load(Sum (&line)[count][4], int k, int from) const {
    // Pieces are exchanged alike in rows that are multiples of eight apart.
    constexpr bool alike = step % 8 == 0;
    constexpr int width = block == 0 ? columns : block;
    const T* const at = tile + place_in_tile<T, rows, columns, block>(first, k);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int more = (from + i) * step, place = place_in_tile<T, rows, columns, block>(first + more, k);
      const auto pack = load_pack<4>(alike || block == 0 ? at + more * width : tile + place);
#pragma unroll
      for (int e = 0; e < 4; ++e) line[i][e] = Sum(pack.get(e));
    }
  }
};

// Lines are columns: groups of so many neighbours, `step` apart.
template <class T, int rows, int columns, int block, int step, int together>
struct LinesAcrossK {
  const T* tile;
  int first;

  template <class Sum, int count>
  TG_DEVICE_MEMBER void load(Sum (&line)[count][4], int k, int from) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < count; i += together) {
        const int more = (from + i) / together * step;
        const int at = place_in_tile<T, rows, columns, block>(k + e, first + more);
        const auto pack = load_pack<together>(tile + at);
#pragma unroll
        for (int j = 0; j < together; ++j) line[i + j][e] = Sum(pack.get(j));
      }
    }
  }
};

// Columns that a thread has in registers at a time: a divisor of all, in whole groups of four if it can be.
TG_DEVICE constexpr int columns_at_a_time(int columns) {
  for (int count = 8; count > 1; --count)
    if (columns % count == 0 && (count % 4 == 0 || columns % 4 != 0)) return count;
  return 1;
}

template <int rows, int columns, int k, class Sum, class A, class B>
TG_DEVICE void multiply_add(Sum* c, const A& a, const B& b) {
  constexpr int at_once = columns_at_a_time(columns);
#pragma unroll 2
  for (int at = 0; at < k; at += 4) {
    Sum x[rows][4];
    a.load(x, at, 0);
#pragma unroll
    for (int from = 0; from < columns; from += at_once) {
      Sum y[at_once][4];
      b.load(y, at, from);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int i = 0; i < rows; ++i) {
#pragma unroll
          for (int j = 0; j < at_once; ++j) c[i * columns + from + j] += x[i][e] * y[j][e];
        }
      }
    }
  }
}

}  // namespace tg
