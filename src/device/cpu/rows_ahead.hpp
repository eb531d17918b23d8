// Rows of memory that a product brings into the second-level cache while it computes.
//
// Rows of a tensor are on pages of their own, which the hardware does not fetch ahead across, and packing
// them can wait for 16 lines at a time only. A product has time: one row every few steps costs it 1 %.
#pragma once
#include "memory.hpp"

TEGULA_CPU_BEGIN

// Nothing is fetched.
struct NoneAhead {
  static constexpr bool fetches = false;
  TEGULA_CPU_MEMBER void divide(int) {}
  TEGULA_CPU_MEMBER const char* next() { return nullptr; }
};

// `rows` rows of `bytes` bytes, `stride` bytes apart, in parts of 4 lines. Addresses need not exist.
struct RowsAhead {
  static constexpr bool fetches = true;
  static constexpr long part = 256;
  const char* base;
  long stride, rows, bytes;
  const char* row = base;
  long share = 1, calls = 1, left = 1;

  // Shares the rows out among the calls of next().
  TEGULA_CPU_MEMBER void divide(int count) {
    const long parts = bytes > part ? (bytes + part - 1) / part : 1;
    calls = left = count > parts ? count / parts : 1;
    share = (rows + calls - 1) / calls;
  }
  // The first row of the next share.
  TEGULA_CPU_MEMBER const char* next() {
    const char* const first = row;
    row += share * stride;
    if (--left == 0) {
      base += part;
      row = base;
      left = calls;
    }
    return first;
  }
  // Steps between two rows of a share, if there are k in all.
  TEGULA_CPU_MEMBER long interval(long k) const { return k > 8 * share ? k / share : 8; }
  // All of a share of the rows, the i-th of `count` shares.
  TEGULA_CPU_MEMBER void fetch(long i, long count) const {
    const long height = (rows + count - 1) / count, first = i * height;
    const long end = first + height < rows ? first + height : rows;
    for (long r = first; r < end; ++r)
      for (long at = 0; at < bytes; at += 64) __builtin_prefetch(base + r * stride + at, 0, 2);
  }
  // From the second of its halves on a part may be another row's.
  TEGULA_CPU_MEMBER long second_half() const { return bytes > part / 2 ? part / 2 : 0; }
};

// A part of a row, of which `half` bytes are the first half.
TEGULA_CPU_INLINE void prefetch_part(const char* row, long half) {
  __builtin_prefetch(row, 0, 2);
  __builtin_prefetch(row + 64, 0, 2);
  __builtin_prefetch(row + half, 0, 2);
  __builtin_prefetch(row + half + 64, 0, 2);
}

template <class S>
TEGULA_CPU_TEMPLATE RowsAhead rows_ahead(const S* base, long stride, long rows, long columns) {
  return {(const char*)base, stride * long(sizeof(S)), rows, columns * long(sizeof(S))};
}

TEGULA_CPU_END
