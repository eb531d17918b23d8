// Tiles of bf16 that only products by tile registers read (gemm_bf16.hpp). Where the processor has such
// registers, copies from tensors bring their operands as the registers want them, in half the bytes and
// without f32 in between; elsewhere they fill tiles and panels as all others. Either lies in the room of the
// tile.
#pragma once
#include "gemm_bf16.hpp"
#include "panels.hpp"

TEGULA_CPU_BEGIN

#if TEGULA_CPU_W == 16

// 32 values from `from` on, `stride` apart, of which [begin, end) exist; the others are zeros.
TEGULA_CPU_INLINE vi narrow_part(const bf16* from, long stride, long begin, long end) {
  if (stride == 1 && begin <= 0 && end >= tile_step) return load((const int32_t*)from);
  uint16_t part[tile_step] = {};
  for (long e = begin < 0 ? 0 : begin; e < end && e < tile_step; ++e) part[e] = from[e * stride].bits;
  return load((const int32_t*)part);
}

// Rows `first` to first + m of the tiles of A: all steps of 16 rows, then of the next.
TEGULA_CPU_SHARED void copy_narrow_a(char* to, long first, long m, long k, const bf16* from, long row_stride,
                                     long k_stride, Inside inside) {
  const long steps = tile_steps(k), end = inside.n_end < k ? inside.n_end : k;
  for (long i = 0; i < m; ++i) {
    const bool missing = i < inside.k_begin || i >= inside.k_end;
    const bf16* const row = from + i * row_stride;
    const bf16* const ahead =
        i + TEGULA_CPU_ROWS_AHEAD < inside.k_end ? row + TEGULA_CPU_ROWS_AHEAD * row_stride : row;
    const long own = first + i;
    char* const tile = to + own / tile_rows * steps * tile_bytes + own % tile_rows * 64;
    for (long p = 0; p < k; p += tile_step) {
      __builtin_prefetch(ahead + p);
      store((int32_t*)(tile + p / tile_step * tile_bytes),
            narrow_part(row + p * k_stride, k_stride, inside.n_begin - p, missing ? 0 : end - p));
    }
  }
}

// Where two rows, p and the next, of 16 columns from j on are in the tiles of B [k, n].
TEGULA_CPU_INLINE int32_t* narrow_place(char* to, long k, long n, long p, long j) {
  const long tiles = panel_width(n, j / NR) / W, step = p / tile_step * tiles + j % NR / W;
  return (int32_t*)(to + (j / NR * (NR / W) * tile_steps(k) + step) * tile_bytes + p % tile_step * 32);
}

// 16 values of two rows, side by side.
TEGULA_CPU_INLINE vi pairs_of_rows(const bf16* low, const bf16* high) {
  const vu first = __builtin_convertvector(load_as<vector_u16>(low), vu);
  return (vi)(first | __builtin_convertvector(load_as<vector_u16>(high), vu) << 16);
}

// Rows of B are in memory.
TEGULA_CPU_SHARED void copy_narrow_rows(char* to, long k, long n, const bf16* from, long k_stride,
                                        Inside inside) {
  for (long p = 0; p < tile_steps(k) * tile_step; p += 2) {
    const bool both = p >= inside.k_begin && p + 1 < inside.k_end;
    const bf16* const row = from + p * k_stride;
    const bf16* const ahead =
        row + (p + 1 + 2 * TEGULA_CPU_ROWS_AHEAD < inside.k_end ? 2 * TEGULA_CPU_ROWS_AHEAD * k_stride : 0);
    const auto part = [&](long own, long j) {
      const bool missing = own < inside.k_begin || own >= inside.k_end;
      return missing ? vf{}
                     : load_clipped((const float*)nullptr, from + own * k_stride + j, inside.n_begin - j,
                                    inside.n_end - j, 0.0f, Unrounded{});
    };
    for (long j = 0; j < n; j += W) {
      if (!both || j < inside.n_begin || j + W > inside.n_end) {
        store(narrow_place(to, k, n, p, j), bf16_pairs(part(p, j), part(p + 1, j)));
        continue;
      }
      __builtin_prefetch(ahead + j);
      __builtin_prefetch(ahead + k_stride + j);
      store(narrow_place(to, k, n, p, j), pairs_of_rows(row + j, row + k_stride + j));
    }
  }
}
// Columns of B are, or neither.
TEGULA_CPU_SHARED void copy_narrow_columns(char* to, long k, long n, const bf16* from, long k_stride,
                                           long n_stride, Inside inside) {
  int32_t block[W * W];
  for (long j = 0; j < n; j += W) {
    for (long p = 0; p < k; p += tile_step) {
      for (long i = 0; i < W; ++i) {
        const bool missing = j + i < inside.n_begin || j + i >= inside.n_end;
        store(block + i * W, narrow_part(from + (j + i) * n_stride + p * k_stride, k_stride,
                                         inside.k_begin - p, missing ? 0 : inside.k_end - p));
      }
      store_transposed(narrow_place(to, k, n, p, j), W, W, block);
    }
  }
}

#endif

// ---- rows of A that loops compute: W values of row i from column j on, both multiples of W

#if TEGULA_CPU_W == 16
TEGULA_CPU_INLINE bf16* narrow_row_part(float* tile, long k, long i, long j) {
  const long of_row = i / tile_rows * tile_steps(k) * tile_bytes + i % tile_rows * 64;
  return (bf16*)((char*)tile + of_row + j / tile_step * tile_bytes) + j % tile_step;
}
TEGULA_CPU_INLINE vf load_narrow(float* tile, long k, long i, long j) {
  return load(narrow_row_part(tile, k, i, j));
}
// Numbers below 2^-126 become zeros, as products take them.
TEGULA_CPU_INLINE void store_narrow(float* tile, long k, long i, long j, vf x) {
  vector_u16 bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x));
  store_as(narrow_row_part(tile, k, i, j), bits);
}
#else
// No such processor has tile registers.
TEGULA_CPU_INLINE vf load_narrow(float*, long, long, long) { return vf{}; }
TEGULA_CPU_INLINE void store_narrow(float*, long, long, long, vf) {}
#endif

// m rows of a tile of k columns, from row `first` on, which products read as A. Rows of the other form are
// `stride` apart.
TEGULA_CPU_TEMPLATE void load_narrow_a([[maybe_unused]] int32_t has_tiles, float* to, long stride, long m,
                                       long k, const bf16* from, long row_stride, long k_stride,
                                       Inside inside, long first = 0) {
#if TEGULA_CPU_W == 16
  if (has_tiles != 0) return copy_narrow_a((char*)to, first, m, k, from, row_stride, k_stride, inside);
#endif
  load_tile(to + first * stride, stride, 1, m, k, from, row_stride, k_stride, inside, 0.0f, Unrounded{});
}

TEGULA_CPU_INLINE bool is_whole(Inside x, long rows, long columns) {
  return x.k_begin <= 0 && x.k_end >= rows && x.n_begin <= 0 && x.n_end >= columns;
}
// Rows that lie a multiple of a larger power of two apart share sets of the first-level cache: 32 would not
// have room at once.
TEGULA_CPU_INLINE bool has_sets(long row_bytes) { return (row_bytes & -row_bytes) <= 1024; }

// As load_narrow_a, of a tile that one product reads. Where they may stay, tile registers read rows that
// exist, lie along k and begin lines of the cache where they are.
TEGULA_CPU_TEMPLATE PlacedRows place_narrow_a(int32_t has_tiles, bool may_stay, float* to, long stride,
                                              long m, long k, const bf16* from, long row_stride,
                                              long k_stride, Inside inside) {
#if TEGULA_CPU_W == 16
  const bool lines = ((uintptr_t)from | (uintptr_t)(row_stride * 2)) % 64 == 0;
  if (has_tiles == 1 && may_stay && k_stride == 1 && lines && k % tile_step == 0 && is_whole(inside, m, k) &&
      has_sets(row_stride * 2))
    return {to, from, row_stride};
#else
  (void)may_stay;
#endif
  load_narrow_a(has_tiles, to, stride, m, k, from, row_stride, k_stride, inside);
  return {to, nullptr, 0};
}

// Where complete sums of m rows and n columns leave to: by tile registers, and if all of it exists.
template <class S>
TEGULA_CPU_TEMPLATE Leaving<S> sums_leave(int32_t has_tiles, bool complete, S* to, long stride,
                                          long column_stride, long m, long n, Inside inside) {
  const bool all = has_tiles == 1 && complete && column_stride == 1 && is_whole(inside, m, n) &&
                   has_sets(stride * long(sizeof(S)));
  return {all ? to : nullptr, stride};
}

// The panels of B [k, n].
TEGULA_CPU_TEMPLATE void load_narrow_b([[maybe_unused]] int32_t has_tiles, float* to, long k, long n,
                                       const bf16* from, long k_stride, long n_stride, Inside inside) {
#if TEGULA_CPU_W == 16
  if (has_tiles != 0 && n_stride == 1) return copy_narrow_rows((char*)to, k, n, from, k_stride, inside);
  if (has_tiles != 0) return copy_narrow_columns((char*)to, k, n, from, k_stride, n_stride, inside);
#endif
  if (n_stride == 1)
    load_panels(to, k, n, from, k_stride, n_stride, inside, 0.0f, Unrounded{});
  else
    load_panels_transposed(to, k, n, from, k_stride, n_stride, inside, 0.0f, Unrounded{});
}

TEGULA_CPU_END
