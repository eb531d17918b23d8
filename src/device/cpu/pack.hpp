// Filling the panels that gemm_panel reads as B, with conversion from any storage type and clipping at
// bounds.
//
// pack_rows reads a source whose rows are rows of B (n contiguous), pack_columns one whose rows are columns
// of B (k contiguous, as in A times B transposed) by transposing blocks of W x W in registers. Both ask a
// function for the start of every row or column, so that dense and gathered sources are one case; a null
// pointer stands for a row that does not exist and reads as `fill`. Padding columns become zero.
#pragma once
#include "gemm.hpp"

TEGULA_CPU_BEGIN

// The part of B that may be read, rows [k_begin, k_end) and columns [n_begin, n_end); the rest reads as
// `fill`.
struct Inside {
  long k_begin, k_end, n_begin, n_end;
};
TEGULA_CPU_INLINE Inside whole(long k, long n) { return {0, k, 0, n}; }

// What is done to the vectors on their way: nothing, or what a narrower tile type asks for.
struct Unrounded {
  template <class V>
  TEGULA_CPU_MEMBER V operator()(V x) const {
    return x;
  }
};
struct RoundBf16 {
  TEGULA_CPU_MEMBER vf operator()(vf x) const { return round_bf16(x); }
};
struct RoundF16 {
  TEGULA_CPU_MEMBER vf operator()(vf x) const { return round_f16(x); }
};
struct RoundE4m3 {
  TEGULA_CPU_MEMBER vf operator()(vf x) const { return round_e4m3(x); }
};
struct RoundE5m2 {
  TEGULA_CPU_MEMBER vf operator()(vf x) const { return round_e5m2(x); }
};

// Rows with a fixed distance: element (i, 0) is base[i * stride].
template <class S>
struct Strided {
  const S* base;
  long stride;
  TEGULA_CPU_MEMBER const S* operator()(long i) const { return base + i * stride; }
};
template <class S>
TEGULA_CPU_TEMPLATE Strided<S> strided(const S* base, long stride) {
  return {base, stride};
}

// Rows named by index: row index[i] of a table of `rows` rows; an index outside it is a missing row.
template <class S, class I>
struct Gathered {
  const S* base;
  long stride, rows;
  const I* index;
  TEGULA_CPU_MEMBER const S* operator()(long i) const {
    const long row = long(index[i]);
    return row >= 0 && row < rows ? base + row * stride : nullptr;
  }
};
template <class S, class I>
TEGULA_CPU_TEMPLATE Gathered<S, I> gathered(const S* base, long stride, long rows, const I* index) {
  return {base, stride, rows, index};
}

TEGULA_CPU_INLINE vf panel_value(const float*, vf x) { return x; }
TEGULA_CPU_INLINE vf panel_value(const float*, vi x) { return to_f32(x); }
TEGULA_CPU_INLINE vf panel_value(const float*, vu x) { return to_f32(x); }
TEGULA_CPU_INLINE vi panel_value(const int32_t*, vi x) { return x; }
TEGULA_CPU_INLINE vi panel_value(const int32_t*, vu x) { return (vi)x; }
TEGULA_CPU_INLINE vi panel_value(const int32_t*, vf x) { return to_i32(x); }
TEGULA_CPU_INLINE vu panel_value(const uint32_t*, vu x) { return x; }
TEGULA_CPU_INLINE vu panel_value(const uint32_t*, vi x) { return (vu)x; }
TEGULA_CPU_INLINE vu panel_value(const uint32_t*, vf x) { return to_u32(x); }
TEGULA_CPU_INLINE vd panel_value(const double*, vd x) { return x; }
template <class V>
TEGULA_CPU_TEMPLATE vd panel_value(const double*, V x) {
  return to_f64(x);
}
TEGULA_CPU_INLINE vf panel_value(const float*, vd x) { return to_f32(x); }

// W elements from p on, of which [begin, end) exist.
template <class T, class S, class Map>
TEGULA_CPU_TEMPLATE auto load_clipped(const T* type, const S* p, long begin, long end, T fill,
                                      const Map& map) {
  if (begin <= 0 && end >= W) return map(panel_value(type, load(p)));
  Staging<S> staging{};
  for (long i = begin < 0 ? 0 : begin; i < end && i < W; ++i) staging.element[i] = p[i];
  return select(lanes_between(begin, end), map(panel_value(type, load(staging.element))), splat(fill));
}

// Rows of a matrix in memory are on pages of their own, which the hardware does not fetch ahead across.
#ifndef TEGULA_CPU_ROWS_AHEAD
#define TEGULA_CPU_ROWS_AHEAD 4
#endif

// One line of a tile, line `i` of the source clipped to `inside`: put(j, x) gets W columns from j on.
template <class T, class Row, class Map, class Put>
TEGULA_CPU_TEMPLATE void for_each_vector(const T* type, long i, long n, const Row& row, const Inside& inside,
                                         T fill, const Map& map, Put put) {
  const bool missing = i < inside.k_begin || i >= inside.k_end;
  const auto* source = missing ? nullptr : row(i);
  long j = 0;
  if (source && inside.n_begin <= 0 && inside.n_end >= n) {
    const auto* ahead = i + TEGULA_CPU_ROWS_AHEAD < inside.k_end ? row(i + TEGULA_CPU_ROWS_AHEAD) : nullptr;
    ahead = ahead ? ahead : source;
    for (; j + W <= n; j += W) {
      __builtin_prefetch(ahead + j);
      put(j, map(panel_value(type, load(source + j))));
    }
  }
  const long n_end = !source ? 0 : inside.n_end < n ? inside.n_end : n;
  for (; j < n; j += W) {
    const auto* from = source ? source + j : source;
    const auto x = load_clipped(type, from, inside.n_begin - j, n_end - j, fill, map);
    put(j, j + W > n ? select(lanes_below(n - j), x, splat(T(0))) : x);
  }
}

// panels <- B, where row(p)[j] is B(p, j).
template <class T, class Row, class Map = Unrounded>
static void pack_rows(T* panels, long k, long n, Row row, Inside inside, T fill = 0, Map map = {}) {
  const long wide = panel_columns(n) / NR * NR, rest = panel_columns(n) - wide;
  for (long p = 0; p < k; ++p) {
    for_each_vector(
        panels, p, n, row, inside, fill, map, [=](long j, auto x) __attribute__((always_inline)) {
          store(panels + j / NR * NR * k + p * (j < wide ? NR : rest) + j % NR, x);
        });
  }
}

// The same into a row-major tile, such as gemm_panel reads as A: row i from tile + i * stride on. Columns up
// to a multiple of W are written.
template <class T, class Row, class Map = Unrounded>
static void copy_rows(T* tile, long stride, long rows, long columns, Row row, Inside inside, T fill = 0,
                      Map map = {}) {
  for (long i = 0; i < rows; ++i) {
    T* to = tile + i * stride;
    for_each_vector(
        tile, i, columns, row, inside, fill,
        map, [=](long j, auto x) __attribute__((always_inline)) { store(to + j, x); });
  }
}

template <int I>
struct Index {
  static constexpr int value = I;
};
template <int End, int I = 0, class Body>
TEGULA_CPU_TEMPLATE void unrolled(Body body) {
  if constexpr (I < End) {
    body(Index<I>{});
    unrolled<End, I + 1>(body);
  }
}

// Exchanges the off-diagonal blocks of H x H elements of two rows that are H apart.
template <int H, class V>
TEGULA_CPU_TEMPLATE void exchange(V& a, V& b) {
  const V x = a, y = b;
#if TEGULA_CPU_W == 16
  if constexpr (H == 8) {
    a = __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    b = __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  } else if constexpr (H == 4) {
    a = __builtin_shufflevector(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    b = __builtin_shufflevector(x, y, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  } else if constexpr (H == 2) {
    a = __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    b = __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  } else {
    a = __builtin_shufflevector(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    b = __builtin_shufflevector(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
#elif TEGULA_CPU_W == 8
  if constexpr (H == 4) {
    a = __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11);
    b = __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
  } else if constexpr (H == 2) {
    a = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
    b = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
  } else {
    a = __builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14);
    b = __builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
  }
#else
  if constexpr (H == 2) {
    a = __builtin_shufflevector(x, y, 0, 1, 4, 5);
    b = __builtin_shufflevector(x, y, 2, 3, 6, 7);
  } else {
    a = __builtin_shufflevector(x, y, 0, 4, 2, 6);
    b = __builtin_shufflevector(x, y, 1, 5, 3, 7);
  }
#endif
}

// Transposes W rows of W lanes. The indices are constants, so the array lives in registers.
template <class V, int H = W / 2>
TEGULA_CPU_TEMPLATE void transpose(V (&rows)[W]) {
  unrolled<W>([&](auto i) __attribute__((always_inline)) {
    constexpr int r = decltype(i)::value;
    if constexpr (!(r & H)) exchange<H>(rows[r], rows[r + H]);
  });
  if constexpr (H > 1) transpose<V, H / 2>(rows);
}

// The first `height` rows of the transpose of W x W values. Never inlined: it is large, and one copy serves
// all.
template <class T>
TEGULA_CPU_SHARED void store_transposed(T* to, long width, long height, const T* block) {
  typename VectorOf<T>::type rows[W];
  unrolled<W>([&](auto i) __attribute__((always_inline)) {
    constexpr int r = decltype(i)::value;
    rows[r] = load(block + r * W);
  });
  transpose(rows);
  unrolled<W>([&](auto i) __attribute__((always_inline)) {
    constexpr int r = decltype(i)::value;
    if (r < height) store(to + r * width, rows[r]);
  });
}

// panels <- B, where column(j)[p] is B(p, j).
template <class T, class Column, class Map = Unrounded>
static void pack_columns(T* panels, long k, long n, Column column, Inside inside, T fill = 0, Map map = {}) {
  T block[W * W];
  for (long j = 0; j < n; j += W) {
    const long width = panel_width(n, j / NR);
    T* to = panels + panel_index(k, n, 0, j);
    for (long p = 0; p < k; p += W) {
      for (long i = 0; i < W; ++i) {
        const bool exists = j + i >= inside.n_begin && j + i < inside.n_end && j + i < n;
        const auto* source = exists ? column(j + i) : nullptr;
        const long end = source ? inside.k_end - p : 0;
        store(block + i * W, load_clipped(panels, source ? source + p : source, inside.k_begin - p, end,
                                          j + i < n ? fill : T(0), map));
      }
      store_transposed(to + p * width, width, k - p, block);
    }
  }
}
template <class Column, class Map = Unrounded>
static void pack_columns(double* panels, long k, long n, Column column, Inside inside, double fill = 0,
                         Map map = {}) {
  for (long j = 0; j < panel_columns(n); ++j) {
    const bool exists = j >= inside.n_begin && j < inside.n_end && j < n;
    const auto* source = exists ? column(j) : nullptr;
    for (long p = 0; p < k; ++p) {
      const bool readable = source && p >= inside.k_begin && p < inside.k_end;
      panels[panel_index(k, n, p, j)] = readable ? map(to_f64(load1(source + p))) : j < n ? fill : 0.0;
    }
  }
}

TEGULA_CPU_END
