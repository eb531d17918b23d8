// Tensors and tiles as the operand B of a product.
#pragma once
#include "tile.hpp"

TEGULA_CPU_BEGIN

// The panels of B [k, n] from memory whose rows are rows of B, or columns of B.
template <class T, class S, class Map>
TEGULA_CPU_TEMPLATE void load_panels(T* to, long k, long n, const S* from, long k_stride, long n_stride,
                                     Inside inside, T fill, Map map) {
  if (n_stride == 1) {
    pack_rows(to, k, n, strided(from, k_stride), inside, fill, map);
    return;
  }
  for (long p = 0; p < k; ++p) {
    const bool missing = p < inside.k_begin || p >= inside.k_end;
    const long end = missing ? 0 : inside.n_end;
    for (long j = 0; j < n; j += W) {
      const vm in = lanes_between(inside.n_begin - j, end - j);
      const S* base = from + p * k_stride + j * n_stride;
      const auto x = map(panel_value(to, load_lanes(from, in, [&](int i) { return base + i * n_stride; })));
      store(to + panel_index(k, n, p, j),
            select(lanes_below(n - j), select(in, x, splat(fill)), splat(T(0))));
    }
  }
}
template <class T, class S, class Map>
TEGULA_CPU_TEMPLATE void load_panels_transposed(T* to, long k, long n, const S* from, long k_stride,
                                                long n_stride, Inside inside, T fill, Map map) {
  if (k_stride == 1)
    pack_columns(to, k, n, strided(from, n_stride), inside, fill, map);
  else
    load_panels(to, k, n, from, k_stride, n_stride, inside, fill, map);
}

// Panels of gathered rows, which are rows of B or, `transposed`, columns of B. A negative row is missing.
template <bool Transposed, class T, class S, class Map>
TEGULA_CPU_TEMPLATE void gather_panels(T* to, long rows, long cols, const S* from, long row_stride,
                                       long col_stride, const long* row, long begin, long end, T fill,
                                       Map map) {
  const auto source = [&](long i) { return row[i] >= 0 ? from + row[i] * row_stride : (const S*)nullptr; };
  if (col_stride == 1) {
    if constexpr (Transposed)
      pack_columns(to, cols, rows, source, Inside{begin, end, 0, rows}, fill, map);
    else
      pack_rows(to, rows, cols, source, Inside{0, rows, begin, end}, fill, map);
    return;
  }
  for (long i = 0; i < rows; ++i) {
    for (long j = 0; j < panel_columns(Transposed ? rows : cols); ++j) {
      if constexpr (!Transposed) {
        const bool exists = row[i] >= 0 && j >= begin && j < end && j < cols;
        to[panel_index(rows, cols, i, j)] =
            exists     ? lane(map(panel_value(to, load_strided(source(i) + j * col_stride, 0, 1))), 0)
            : j < cols ? fill
                       : T(0);
      }
    }
  }
  if constexpr (Transposed) {
    for (long j = 0; j < panel_columns(rows); ++j) {
      for (long p = 0; p < cols; ++p) {
        const bool exists = j < rows && row[j] >= 0 && p >= begin && p < end;
        to[panel_index(cols, rows, p, j)] =
            exists     ? lane(map(panel_value(to, load_strided(source(j) + p * col_stride, 0, 1))), 0)
            : j < rows ? fill
                       : T(0);
      }
    }
  }
}

// ---- panels that the product fills

template <class A, class B>
constexpr bool same_type = false;
template <class A>
constexpr bool same_type<A, A> = true;

// Whether a product may read rows of S where its panels hold T: they need nothing but a load.
template <class T, class S, class Map>
struct LoadsAs {
  static constexpr bool value = false;
};
template <class S>
struct LoadsAs<float, S, Unrounded> {
  static constexpr bool value = same_type<decltype(load((const S*)nullptr)), vf>;
};

// The rows of B [k, n], n a multiple of W, for a product that fills the panels; full panels where parts of
// the rows are missing or values need more than a load.
template <bool Once = false, class T, class S, class Map>
TEGULA_CPU_TEMPLATE auto rows_or_panels(T* to, long k, long n, const S* from, long k_stride, long n_stride,
                                        Inside inside, T fill, Map map) {
  if constexpr (LoadsAs<T, S, Map>::value) {
    const bool exist = inside.k_begin <= 0 && inside.k_end >= k && inside.n_begin <= 0 && inside.n_end >= n;
    if (exist && n_stride == 1) return RowsOrPanels<T, S, Once>{to, from, k_stride};
    load_panels(to, k, n, from, k_stride, n_stride, inside, fill, map);
    return RowsOrPanels<T, S, Once>{to, nullptr, 0};
  } else {
    load_panels(to, k, n, from, k_stride, n_stride, inside, fill, map);
    return (const T*)to;
  }
}

TEGULA_CPU_END
