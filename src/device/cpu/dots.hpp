// Few rows by columns of B that lie along k in memory: sums of products of vectors. Panels would be
// transposed for them, which takes several times as long as reading.
#pragma once
#include "panels.hpp"

TEGULA_CPU_BEGIN

// The most rows that are multiplied so.
constexpr int dot_rows = 4;

// Columns of B of which the product reads each once; null: the panel is full.
template <class T, class S>
struct ColumnsOrPanels {
  T* panel;
  const S* columns;
  long stride;
};

// The columns of B [k, n], k a multiple of W, n of dot_columns; full panels where parts of them are missing
// or values need more than a load.
template <class T, class S, class Map>
TEGULA_CPU_TEMPLATE auto columns_or_panels(T* to, long k, long n, const S* from, long k_stride, long n_stride,
                                           Inside inside, T fill, Map map) {
  if constexpr (LoadsAs<T, S, Map>::value) {
    const bool exist = inside.k_begin <= 0 && inside.k_end >= k && inside.n_begin <= 0 && inside.n_end >= n;
    if (exist && k_stride == 1) return ColumnsOrPanels<T, S>{to, from, n_stride};
    load_panels_transposed(to, k, n, from, k_stride, n_stride, inside, fill, map);
    return ColumnsOrPanels<T, S>{to, nullptr, 0};
  } else {
    load_panels_transposed(to, k, n, from, k_stride, n_stride, inside, fill, map);
    return (const T*)to;
  }
}

// The sums of the lanes of four vectors, each as reduce_sum adds them, to four numbers.
TEGULA_CPU_INLINE void store_sums(float* c, vf a, vf b, vf d, vf e, bool accumulate) {
#if TEGULA_CPU_W == 16
  typedef float four __attribute__((vector_size(16)));
  const vf ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  const vf de = __builtin_shufflevector(d, e, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                __builtin_shufflevector(d, e, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  vf all = __builtin_shufflevector(ab, de, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(ab, de, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  all += swap_lanes_2(all);
  all += swap_lanes_1(all);
  four sums = __builtin_shufflevector(all, all, 0, 4, 8, 12);
  if (accumulate) sums += load_as<four>(c);
  store_as(c, sums);
#else
  c[0] = reduce_sum(a) + (accumulate ? c[0] : 0);
  c[1] = reduce_sum(b) + (accumulate ? c[1] : 0);
  c[2] = reduce_sum(d) + (accumulate ? c[2] : 0);
  c[3] = reduce_sum(e) + (accumulate ? c[3] : 0);
#endif
}

// The sums of R rows by four columns, as vectors. Members instead of an array, as those of RegisterTile.
template <int R>
struct DotTile {
  static constexpr int columns = 4;
  vf sum0, sum1, sum2, sum3;
  DotTile<R - 1> below;

  TEGULA_CPU_MEMBER void clear() {
    sum0 = sum1 = sum2 = sum3 = vf{};
    below.clear();
  }
  template <int I>
  TEGULA_CPU_MEMBER void add_product(const float* a, long row_stride, vf b0, vf b1, vf b2, vf b3) {
    const vf x = load(a + I * row_stride);
    sum0 += x * b0, sum1 += x * b1, sum2 += x * b2, sum3 += x * b3;
    below.template add_product<I + 1>(a, row_stride, b0, b1, b2, b3);
  }
  TEGULA_CPU_MEMBER void store_to(float* c, long ldc, bool accumulate) const {
    store_sums(c, sum0, sum1, sum2, sum3, accumulate);
    below.store_to(c + ldc, ldc, accumulate);
  }
};
template <>
struct DotTile<0> {
  static constexpr int columns = 4;
  TEGULA_CPU_MEMBER void clear() {}
  template <int I>
  TEGULA_CPU_MEMBER void add_product(const float*, long, vf, vf, vf, vf) {}
  TEGULA_CPU_MEMBER void store_to(float*, long, bool) const {}
};

template <int R, class Stride, class S>
TEGULA_CPU_SHARED void multiply_dots(long k, const float* a, Stride row_stride, const S* b, long stride,
                                     float* c, long ldc, bool accumulate) {
  DotTile<R> tile;
  tile.clear();
  for (long p = 0; p < k; p += W)
    tile.template add_product<0>(a + p, row_stride, load(b + p), load(b + p + stride),
                                 load(b + p + 2 * stride), load(b + p + 3 * stride));
  tile.store_to(c, ldc, accumulate);
}

// As gemm_panel does it with panels; rows of A lie along k, too.
template <int M, int N, class Stride, class S, class Ahead = NoneAhead>
TEGULA_CPU_TEMPLATE void gemm_columns(long k, const float* a, Stride row_stride,
                                      const ColumnsOrPanels<float, S>& b, float* c, long ldc, bool accumulate,
                                      Ahead ahead = {}) {
  constexpr long columns = DotTile<0>::columns;
  static_assert(M <= dot_rows && N % columns == 0, "few rows, and groups of columns");
  if (b.columns == nullptr)
    return gemm_panel<M, N>(k, a, row_stride, 1, (const float*)b.panel, c, ldc, accumulate, ahead);
  ahead.divide(int(N / columns));
  for (long j = 0; j < N; j += columns) {
    if constexpr (Ahead::fetches) {
      const char* row = ahead.next();
      for (long i = 0; i < ahead.share; ++i, row += ahead.stride) prefetch_part(row, ahead.second_half());
    }
    multiply_dots<M>(k, a, row_stride, b.columns + j * b.stride, b.stride, c + j, ldc, accumulate);
  }
}
template <int M, int N, class Stride, class Ahead = NoneAhead>
TEGULA_CPU_TEMPLATE void gemm_columns(long k, const float* a, Stride row_stride, const float* b, float* c,
                                      long ldc, bool accumulate, Ahead ahead = {}) {
  gemm_panel<M, N>(k, a, row_stride, 1, b, c, ldc, accumulate, ahead);
}

TEGULA_CPU_END
