// C (+)= A B of bf16 values by the tile registers of AMX, or by pairs of values, where the processor has
// instructions for them (TegulaCall::has_tiles): five times the rate of the products of gemm.hpp, or twice
// that rate; these take operands and layouts of that file. Tiles of bf16 are held as f32, so a product
// narrows what it multiplies: A once, B one panel at a time. That is exact; sums are f32. Numbers below the
// least normal one, 2^-126, count as zeros in operands and in sums.
#pragma once
#include "tile_registers.hpp"

TEGULA_CPU_BEGIN

// Bytes of room for the narrowed operands of a product of m rows and depth k.
constexpr long bf16_room(long m, long k) {
  return ((m + tile_rows - 1) / tile_rows + 2) * tile_steps(k) * tile_bytes;
}

// With fewer rows, narrowing B takes longer than it saves.
constexpr int least_tile_rows = 12;

#if TEGULA_CPU_W == 16

// ---- narrowing

// Two values in 32 bits; `low` comes first in memory.
TEGULA_CPU_INLINE vi bf16_pairs(vf low, vf high) { return (vi)(((vu)low >> 16) | ((vu)high & 0xffff0000u)); }
// 32 consecutive values.
TEGULA_CPU_INLINE vi bf16_row(vf first, vf second) {
  typedef uint16_t v32 __attribute__((vector_size(64)));
  return (vi)__builtin_shufflevector((v32)first, (v32)second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25,
                                     27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61,
                                     63);
}

// One tile of A: `rows` rows of 32 values, of which `depth` exist; the others are zeros. Rows are in memory,
// or columns do, or neither.
TEGULA_CPU_SHARED void narrow_tile_a(int32_t* to, const float* a, long row_stride, long k_stride, long rows,
                                     long depth) {
  if (row_stride == 1 && k_stride != 1) {
    int32_t block[W * W];
    for (long p = 0; p < tile_rows; ++p) {
      const float* const low = a + 2 * p * k_stride;
      const vf first = 2 * p < depth ? load_n(low, rows) : vf{};
      const vf second = 2 * p + 1 < depth ? load_n(low + k_stride, rows) : vf{};
      store(block + p * W, bf16_pairs(first, second));
    }
    store_transposed(to, W, W, block);
    return;
  }
  for (long i = 0; i < rows; ++i) {
    const float* const row = a + i * row_stride;
    if (k_stride == 1 && depth >= tile_step) {
      store(to + i * W, bf16_row(load(row), load(row + W)));
    } else {
      const long left = depth < W ? depth : W, right = depth < W ? 0 : depth < tile_step ? depth - W : W;
      store(to + i * W,
            bf16_row(load_strided(row, k_stride, left), load_strided(row + W * k_stride, k_stride, right)));
    }
  }
}

// The tiles of m rows of A: all steps of 16 rows, then of the next.
TEGULA_CPU_SHARED void narrow_a(char* to, const float* a, long row_stride, long k_stride, long m, long k) {
  for (long i = 0; i < m; i += tile_rows) {
    for (long p = 0; p < k; p += tile_step) {
      narrow_tile_a((int32_t*)to, a + i * row_stride + p * k_stride, row_stride, k_stride,
                    m - i < tile_rows ? m - i : tile_rows, k - p);
      to += tile_bytes;
    }
  }
}

// A panel of B, `width` (16 or 32) columns: tiles of 16 columns, side by side. Row p is rows + p * stride;
// the panel of f32 is filled on the way, unless it is null.
template <class S>
TEGULA_CPU_SHARED void narrow_panel(char* to, const S* rows, long stride, float* panel, long k, long width) {
  for (long p = 0; p < tile_steps(k) * tile_step; p += 2) {
    char* const tile = to + p / tile_step * (width / W) * tile_bytes + p % tile_step / 2 * 64;
    for (long j = 0; j < width; j += W) {
      const vf low = p < k ? load(rows + p * stride + j) : vf{};
      const vf high = p + 1 < k ? load(rows + (p + 1) * stride + j) : vf{};
      store((int32_t*)(tile + j / W * tile_bytes), bf16_pairs(low, high));
      if (panel != nullptr && p < k) store(panel + p * width + j, low);
      if (panel != nullptr && p + 1 < k) store(panel + (p + 1) * width + j, high);
    }
  }
}
TEGULA_CPU_INLINE void narrow_b(char* to, const FullPanels<float>& b, long k, long width) {
  narrow_panel(to, b.panel, width, nullptr, k, width);
}
template <class S>
TEGULA_CPU_TEMPLATE void narrow_b(char* to, const RowsOrPanels<float, S, false>& b, long k, long width) {
  if (b.rows != nullptr)
    narrow_panel(to, b.rows, b.stride, b.panel, k, width);
  else
    narrow_panel(to, (const float*)b.panel, width, nullptr, k, width);
}

// ---- pairs of values: the same tiles, whose rows of A lanes multiply with rows of B

// Sums of one row and those above it; one row a level, so that all are registers.
template <int Rows, bool Right>
struct PairSums {
  PairSums<Rows - 1, Right> above;
  vf left, right;

  TEGULA_CPU_MEMBER void load_from(const float* c, long ldc, bool accumulate) {
    above.load_from(c, ldc, accumulate);
    const float* const row = c + (Rows - 1) * ldc;
    left = accumulate ? load(row) : vf{};
    if constexpr (Right) right = accumulate ? load(row + W) : vf{};
  }
  // A pair of each row, read once for both: two operands in memory would wait for loads, not for products.
  TEGULA_CPU_MEMBER void add(const char* a, vi of_left, vi of_right) {
    above.add(a, of_left, of_right);
    const int32_t* const pair = (const int32_t*)(a + (Rows - 1) * 64);
    const vi x = splat(*pair);
    asm("vdpbf16ps %2, %1, %0" : "+v"(left) : "v"(of_left), "v"(x));
    if constexpr (Right) asm("vdpbf16ps %2, %1, %0" : "+v"(right) : "v"(of_right), "v"(x));
  }
  TEGULA_CPU_MEMBER void store_to(float* c, long ldc) const {
    above.store_to(c, ldc);
    store(c + (Rows - 1) * ldc, left);
    if constexpr (Right) store(c + (Rows - 1) * ldc + W, right);
  }
};
template <bool Right>
struct PairSums<0, Right> {
  TEGULA_CPU_MEMBER void load_from(const float*, long, bool) {}
  TEGULA_CPU_MEMBER void add(const char*, vi, vi) {}
  TEGULA_CPU_MEMBER void store_to(float*, long) const {}
};

template <int Rows, bool Right>
TEGULA_CPU_SHARED void multiply_pairs(long steps, const char* a, const char* b, float* c, long ldc,
                                      bool accumulate) {
  PairSums<Rows, Right> sums;
  sums.load_from(c, ldc, accumulate);
  for (; steps > 0; --steps) {
    for (long pair = 0; pair < tile_rows; ++pair) {
      const vi left = load((const int32_t*)(b + pair * 64));
      const vi right = Right ? load((const int32_t*)(b + tile_bytes + pair * 64)) : vi{};
      sums.add(a + pair * 4, left, right);
    }
    a += tile_bytes;
    b += (Right ? 2 : 1) * tile_bytes;
  }
  sums.store_to(c, ldc);
}

template <int M, bool Right>
TEGULA_CPU_TEMPLATE void multiply_panel_by_pairs(long steps, const char* a, const char* b, float* c, long ldc,
                                                 bool accumulate) {
  constexpr int together = tile_rows / 2, full = M / together * together, rest = M - full;
  const auto row = [&](long i) { return a + i / tile_rows * steps * tile_bytes + i % tile_rows * 64; };
  for (long i = 0; i < full; i += together)
    multiply_pairs<together, Right>(steps, row(i), b, c + i * ldc, ldc, accumulate);
  if constexpr (rest > 0) multiply_pairs<rest, Right>(steps, row(full), b, c + full * ldc, ldc, accumulate);
}

// M rows by one panel.
template <int M, bool Right, class Leaves>
TEGULA_CPU_TEMPLATE void multiply_panel(bool by_pairs, long steps, const TilesOfA& a, const char* b, Sums c,
                                        bool accumulate, Leaves leaving) {
  if (by_pairs) return multiply_panel_by_pairs<M, Right>(steps, a.at, b, c.at, c.row, accumulate);
  constexpr int pair = 2 * tile_rows, full = M / pair * pair, rest = M - full;
  if constexpr (full > 0 && rest > 0) configure_tiles(tile_rows, tile_rows);
  for (long i = 0; i < full; i += pair) multiply_rows<pair, Right>(steps, a, i, b, c, accumulate, leaving);
  if constexpr (rest > 0) {
    configure_tiles(rest < tile_rows ? rest : tile_rows, rest > tile_rows ? rest - tile_rows : 0);
    multiply_rows<rest, Right>(steps, a, full, b, c, accumulate, leaving);
  }
}

// The columns from j on.
template <class S>
TEGULA_CPU_TEMPLATE Leaving<S> of_columns(Leaving<S> x, long j) {
  return {x.to == nullptr ? nullptr : x.to + j, x.stride};
}
TEGULA_CPU_INLINE NoneLeaving of_columns(NoneLeaving x, long) { return x; }

// `IsNarrow`: operands that copies have narrowed (narrowed.hpp); the panels of B are full.
template <int M, int N, class IsNarrow, class A, class Stride, class B, class Ahead, class Leaves>
TEGULA_CPU_TEMPLATE void gemm_tiles(bool by_pairs, char* room, long k, const A& a, Stride row_stride,
                                    long k_stride, const B& b, Sums c, bool accumulate, Ahead ahead,
                                    Leaves leaving) {
  constexpr long columns = panel_columns(N), panels = (columns + NR - 1) / NR;
  const long steps = tile_steps(k);
  TilesOfA left = tiles_in_place(a, steps);
  char* const next = room + (M + tile_rows - 1) / tile_rows * steps * tile_bytes;
  if constexpr (!IsNarrow::a) {
    narrow_a(room, a, row_stride, k_stride, M, k);
    left = packed_tiles(room, steps);
  }
  if constexpr (M % (2 * tile_rows) == 0)
    if (!by_pairs) configure_tiles(tile_rows, tile_rows);
  for (long j = 0; j < columns; j += NR) {
    const long width = panel_width(N, j / NR);
    if constexpr (Ahead::fetches) ahead.fetch(j / NR, panels);
    const char* panel = (const char*)b.panel + j / W * steps * tile_bytes;
    if constexpr (!IsNarrow::b) {
      narrow_b(next, b.part(j * k, 0, j), k, width);
      panel = next;
    }
    const Sums sums = {c.at + j, c.row};
    if (width == NR)
      multiply_panel<M, true>(by_pairs, steps, left, panel, sums, accumulate, of_columns(leaving, j));
    else
      multiply_panel<M, false>(by_pairs, steps, left, panel, sums, accumulate, of_columns(leaving, j));
  }
  if (!by_pairs) release_tiles();
}

#endif

// Which operands of a product are narrow already where there are such instructions.
template <bool A, bool B>
struct Narrow {
  static constexpr bool a = A, b = B;
};

template <int M, int N, class IsNarrow, class A, class Stride, class B, class Ahead, class Leaves>
TEGULA_CPU_TEMPLATE void gemm_bf16_blocks([[maybe_unused]] int32_t has_tiles, [[maybe_unused]] char* room,
                                          long k, const A& a, Stride row_stride, long k_stride, const B& b,
                                          float* c, long ldc, bool accumulate, Ahead ahead,
                                          [[maybe_unused]] Leaves leaving) {
#if TEGULA_CPU_W == 16
  if constexpr (M >= least_tile_rows) {
    if (has_tiles != 0 && k > 0) {
      gemm_tiles<M, N, IsNarrow>(has_tiles == 2, room, k, a, row_stride, k_stride, b, Sums{c, ldc},
                                 accumulate, ahead, leaving);
      return;
    }
  }
#endif
  gemm_blocks<M, N>(k, tile_of(a), row_stride, k_stride, b, c, ldc, accumulate, ahead);
}

// As gemm_panel, of values that are bf16; `room` has bf16_room(M, k) bytes. PlacedRows are operands that
// copies have narrowed. Sums that leave are not in c.
template <int M, int N, class IsNarrow = Narrow<false, false>, class A, class Stride, class Ahead = NoneAhead,
          class Leaves = NoneLeaving>
TEGULA_CPU_TEMPLATE void gemm_bf16(int32_t has_tiles, char* room, long k, const A& a, Stride row_stride,
                                   long k_stride, const float* b, float* c, long ldc, bool accumulate,
                                   Ahead ahead = {}, Leaves leaving = {}) {
  gemm_bf16_blocks<M, N, IsNarrow>(has_tiles, room, k, a, row_stride, k_stride, FullPanels<float>{b}, c, ldc,
                                   accumulate, ahead, leaving);
}
template <int M, int N, class IsNarrow = Narrow<false, false>, class A, class Stride, class S, bool Once,
          class Ahead = NoneAhead, class Leaves = NoneLeaving>
TEGULA_CPU_TEMPLATE void gemm_bf16(int32_t has_tiles, char* room, long k, const A& a, Stride row_stride,
                                   long k_stride, const RowsOrPanels<float, S, Once>& b, float* c, long ldc,
                                   bool accumulate, Ahead ahead = {}, Leaves leaving = {}) {
  gemm_bf16_blocks<M, N, IsNarrow>(has_tiles, room, k, a, row_stride, k_stride, b, c, ldc, accumulate, ahead,
                                   leaving);
}

TEGULA_CPU_END
