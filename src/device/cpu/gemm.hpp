// C (+)= A B from registers: the only matrix micro-kernel. B is in panels, which pack.hpp fills, or the
// product itself from rows of memory; A is read with strides, C is row-major.
//
// A panel holds NR columns of B, row by row: element (k, n) of panel n / NR. The last panel is narrower when
// n ends early: its width is a multiple of W. Padding columns are computed like any other, so they must hold
// numbers (pack.hpp writes zeros) and the padding columns of C, up to a multiple of W, may be written.
#pragma once
#include "rows_ahead.hpp"

TEGULA_CPU_BEGIN

// Rows and columns of the register tile: MR * NR / W accumulators, NR / W vectors of B and a broadcast of A
// fill the registers of the instruction set.
constexpr int NR = 2 * W;
#if TEGULA_CPU_W == 16
constexpr int MR = 14;
#else
constexpr int MR = 6;
#endif

// A panel of this many rows fits in L1 beside the rows of A; longer sums are cut.
constexpr long KC = 256;

constexpr long panel_columns(long n) { return (n + W - 1) / W * W; }
constexpr long panel_size(long k, long n) { return k * panel_columns(n); }
constexpr long panel_width(long n, long panel) {
  return panel_columns(n) - panel * NR < NR ? panel_columns(n) - panel * NR : NR;
}
// Where element (p, j) of a k x n matrix is in its panels.
constexpr long panel_index(long k, long n, long p, long j) {
  return j / NR * NR * k + p * panel_width(n, j / NR) + j % NR;
}

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef vf type;
};
template <>
struct VectorOf<int32_t> {
  typedef vi type;
};

// The accumulators of R rows. Nested members instead of an array: each becomes a register of its own, while
// arrays of vectors are kept on the stack, which costs three quarters of the speed.
template <class T, int R, bool Wide>
struct RegisterTile {
  typedef typename VectorOf<T>::type V;
  V left, right;
  RegisterTile<T, R - 1, Wide> below;

  TEGULA_CPU_MEMBER void clear() {
    left = V{};
    if constexpr (Wide) right = V{};
    below.clear();
  }
  // Row `I` of A is addressed from the first one: a pointer carried from row to row costs an addition each,
  // which is a quarter of the speed.
  template <int I>
  TEGULA_CPU_MEMBER void add_product(const T* a, long row_stride, V b_left, V b_right) {
    const V x = splat(a[I * row_stride]);
    left += x * b_left;
    if constexpr (Wide) right += x * b_right;
    below.template add_product<I + 1>(a, row_stride, b_left, b_right);
  }
  TEGULA_CPU_MEMBER void store_to(T* c, long ldc, bool accumulate) const {
    store(c, accumulate ? load(c) + left : left);
    if constexpr (Wide) store(c + W, accumulate ? load(c + W) + right : right);
    below.store_to(c + ldc, ldc, accumulate);
  }
};
template <class T, bool Wide>
struct RegisterTile<T, 0, Wide> {
  typedef typename VectorOf<T>::type V;
  TEGULA_CPU_MEMBER void clear() {}
  template <int I>
  TEGULA_CPU_MEMBER void add_product(const T*, long, V, V) {}
  TEGULA_CPU_MEMBER void store_to(T*, long, bool) const {}
};

// A distance as a type: rows of A are reached without registers of their own, which is 4 % of the time. A
// library has one function for all distances.
template <long N>
struct Fixed {
  TEGULA_CPU_MEMBER constexpr operator long() const { return N; }
};
#if defined(TEGULA_CPU_LINKED)
template <long N>
TEGULA_CPU_TEMPLATE long fixed() {
  return N;
}
#else
template <long N>
TEGULA_CPU_TEMPLATE Fixed<N> fixed() {
  return {};
}
#endif

// ---- R rows by one panel

// What is fetched while rows are multiplied: each kind fetches a part and gives the steps until the next one,
// of the k that are left. All at once would wait for each other.

// The rows of C that a product with time adds to, into the first-level cache.
template <class T>
struct FetchRowsOfC {
  static constexpr long interval = 8;
  const T* row;
  long stride, left;
  bool wide;

  TEGULA_CPU_MEMBER long steps(long k) {
    if (left == 0) return k;
    __builtin_prefetch(row, 1, 3);
    if (wide) __builtin_prefetch(row + W, 1, 3);
    row += stride;
    --left;
    return interval;
  }
};

// A share of RowsAhead.
struct FetchShare {
  const char* row;
  long stride, half, interval;

  TEGULA_CPU_MEMBER long steps(long k) {
    prefetch_part(row, half);
    row += stride;
    return k < interval ? k : interval;
  }
};

// A share behind the rows of C, which are wanted first.
template <class T>
struct FetchShareBehindC {
  FetchRowsOfC<T> of_c;
  FetchShare share;

  TEGULA_CPU_MEMBER long steps(long k) { return of_c.left > 0 ? of_c.steps(k) : share.steps(k); }
};
// The steps of k in which R rows of C are fetched beside a share: none where it would have no time left.
template <class T, int R>
TEGULA_CPU_TEMPLATE long steps_of_c(long k, bool accumulate) {
  constexpr long steps = R * FetchRowsOfC<T>::interval;
  return accumulate && k >= 2 * steps ? steps : 0;
}

// Where vectors of B come from: a panel, or rows of memory that become the panel on their way. These copies
// have no time of their own, which is 2 % of a product of 256 rows and 13 % of one of 64.
template <class T>
struct FromPanel {
  const T* b;

  TEGULA_CPU_MEMBER auto at(long column) const { return load(b + column); }
  TEGULA_CPU_MEMBER void advance(long width) { b += width; }
};
template <class T, class S>
struct FromRows {
  const S* rows;
  long stride;
  T* b;

  TEGULA_CPU_MEMBER auto at(long column) const {
    const auto x = load(rows + column);
    store(b + column, x);
    return x;
  }
  TEGULA_CPU_MEMBER void advance(long width) {
    rows += stride;
    b += width;
  }
};

// The same of products that nothing reads again: a panel is not filled.
template <class T, class S>
struct FromMemory {
  const S* rows;
  long stride;

  TEGULA_CPU_MEMBER auto at(long column) const { return load(rows + column); }
  TEGULA_CPU_MEMBER void advance(long) { rows += stride; }
};

template <class T, int R, bool Wide, class Stride, class B, class Fetch>
TEGULA_CPU_TEMPLATE void multiply_rows(long k, const T* a, Stride row_stride, long k_stride, B b, T* c,
                                       long ldc, bool accumulate, Fetch fetch) {
  constexpr int width = Wide ? NR : W;
  RegisterTile<T, R, Wide> tile;
  tile.clear();
  while (k > 0) {
    long steps = fetch.steps(k);
    k -= steps;
    do {
      const auto left = b.at(0);
      if constexpr (Wide)
        tile.template add_product<0>(a, row_stride, left, b.at(W));
      else
        tile.template add_product<0>(a, row_stride, left, left);
      a += k_stride;
      b.advance(width);
    } while (--steps > 0);
  }
  tile.store_to(c, ldc, accumulate);
}

// Never inlined, so that products of a kernel share one copy for each R.
template <class T, int R, bool Wide, class Stride>
TEGULA_CPU_SHARED void gemm_rows(long k, const T* a, Stride row_stride, long k_stride, const T* b, T* c,
                                 long ldc, bool accumulate) {
  const bool has_time = accumulate && k > R * FetchRowsOfC<T>::interval;
  multiply_rows<T, R, Wide>(k, a, row_stride, k_stride, FromPanel<T>{b}, c, ldc, accumulate,
                            FetchRowsOfC<T>{c, ldc, has_time ? R : 0, Wide});
}
template <class T, int R, bool Wide, class Stride>
TEGULA_CPU_SHARED void gemm_rows(long k, const T* a, Stride row_stride, long k_stride, const T* b, T* c,
                                 long ldc, bool accumulate, const char* ahead, long ahead_stride, long half,
                                 long interval) {
  const FetchRowsOfC<T> of_c{c, ldc, steps_of_c<T, R>(k, accumulate) > 0 ? R : 0, Wide};
  multiply_rows<T, R, Wide>(k, a, row_stride, k_stride, FromPanel<T>{b}, c, ldc, accumulate,
                            FetchShareBehindC<T>{of_c, {ahead, ahead_stride, half, interval}});
}
template <class T, int R, bool Wide, class Stride, class S>
TEGULA_CPU_SHARED void gemm_rows_and_pack(long k, const T* a, Stride row_stride, long k_stride, const S* rows,
                                          long rows_stride, T* b, T* c, long ldc, bool accumulate,
                                          const char* ahead, long ahead_stride, long half, long interval) {
  multiply_rows<T, R, Wide>(k, a, row_stride, k_stride, FromRows<T, S>{rows, rows_stride, b}, c, ldc,
                            accumulate, FetchShare{ahead, ahead_stride, half, interval});
}

// ---- B

// Panels that are full.
template <class T>
struct FullPanels {
  static constexpr bool packs = false;
  const T* panel;

  TEGULA_CPU_MEMBER FullPanels part(long at, long, long) const { return {panel + at}; }
};

// Panels, and the rows of memory that they are to hold: the first product reads these. Null: they are full.
// `Once`: nothing reads them again, so that they are not filled.
template <class T, class S, bool Once = false>
struct RowsOrPanels {
  static constexpr bool packs = true, once = Once;
  T* panel;
  const S* rows;
  long stride;

  // From row p and column j on, which are at `at` in the panels.
  TEGULA_CPU_MEMBER RowsOrPanels part(long at, long p, long j) const {
    return {panel + at, rows ? rows + p * stride + j : rows, stride};
  }
};

// ---- R rows, M rows, all

template <class T, int R, bool Wide, class Stride, class Ahead>
TEGULA_CPU_TEMPLATE void gemm_rows_and_fetch(long k, const T* a, Stride row_stride, long k_stride, const T* b,
                                             T* c, long ldc, bool accumulate, Ahead& ahead) {
  if constexpr (Ahead::fetches) {
    gemm_rows<T, R, Wide>(k, a, row_stride, k_stride, b, c, ldc, accumulate, ahead.next(), ahead.stride,
                          ahead.second_half(), ahead.interval(k - steps_of_c<T, R>(k, accumulate)));
  } else {
    gemm_rows<T, R, Wide>(k, a, row_stride, k_stride, b, c, ldc, accumulate);
  }
}

template <class T, int R, bool Wide, class Stride, class S, class Ahead>
TEGULA_CPU_TEMPLATE void gemm_rows_of_memory(long k, const T* a, Stride row_stride, long k_stride,
                                             const S* rows, long rows_stride, T* c, long ldc, bool accumulate,
                                             Ahead& ahead) {
  const FromMemory<T, S> b{rows, rows_stride};
  if constexpr (Ahead::fetches)
    multiply_rows<T, R, Wide>(k, a, row_stride, k_stride, b, c, ldc, accumulate,
                              FetchShare{ahead.next(), ahead.stride, ahead.second_half(), ahead.interval(k)});
  else
    multiply_rows<T, R, Wide>(k, a, row_stride, k_stride, b, c, ldc, accumulate,
                              FetchRowsOfC<T>{c, ldc, 0, Wide});
}

// The rows that meet a panel first.
template <class T, int R, bool Wide, class Stride, class B, class Ahead>
TEGULA_CPU_TEMPLATE void gemm_first_rows(long k, const T* a, Stride row_stride, long k_stride, const B& b,
                                         T* c, long ldc, bool accumulate, Ahead& ahead) {
  if constexpr (B::packs) {
    if (b.rows != nullptr) {
      if constexpr (B::once) {
        gemm_rows_of_memory<T, R, Wide>(k, a, row_stride, k_stride, b.rows, b.stride, c, ldc, accumulate,
                                        ahead);
      } else if constexpr (Ahead::fetches) {
        gemm_rows_and_pack<T, R, Wide>(k, a, row_stride, k_stride, b.rows, b.stride, b.panel, c, ldc,
                                       accumulate, ahead.next(), ahead.stride, ahead.second_half(),
                                       ahead.interval(k));
      } else {
        gemm_rows_and_pack<T, R, Wide>(k, a, row_stride, k_stride, b.rows, b.stride, b.panel, c, ldc,
                                       accumulate, (const char*)a, 0, 0, k);
      }
      return;
    }
  }
  gemm_rows_and_fetch<T, R, Wide>(k, a, row_stride, k_stride, b.panel, c, ldc, accumulate, ahead);
}

// m rows by one panel, as tiles of nearly equal heights: 64 rows are 4 * 13 + 12, not 4 * 14 + 8.
template <class T, int M, bool Wide, class Stride, class B, class Ahead>
TEGULA_CPU_TEMPLATE void gemm_column(long k, const T* a, Stride row_stride, long k_stride, const B& b, T* c,
                                     long ldc, bool accumulate, Ahead& ahead) {
  constexpr int tiles = (M + MR - 1) / MR, low = M / tiles, taller = M % tiles, first = low + (taller > 0);
  gemm_first_rows<T, first, Wide>(k, a, row_stride, k_stride, b, c, ldc, accumulate, ahead);
  a += first * row_stride;
  c += first * ldc;
  for (int i = 1; i < taller; ++i) {
    gemm_rows_and_fetch<T, first, Wide>(k, a, row_stride, k_stride, b.panel, c, ldc, accumulate, ahead);
    a += first * row_stride;
    c += first * ldc;
  }
  for (int i = taller > 0 ? taller : 1; i < tiles; ++i) {
    gemm_rows_and_fetch<T, low, Wide>(k, a, row_stride, k_stride, b.panel, c, ldc, accumulate, ahead);
    a += low * row_stride;
    c += low * ldc;
  }
}

// C[M x N] = (or += if `accumulate`) A[M x k] B, where A(i, p) is a[i * row_stride + p * k_stride] and b is
// the k x N matrix B, FullPanels or RowsOrPanels. For float and for int32_t, whose sums wrap. Panels are the
// outer loop: one stays in L1 while the rows of A pass from L2. `ahead` is fetched meanwhile.
template <int M, int N, class T, class Stride, class B, class Ahead = NoneAhead>
TEGULA_CPU_TEMPLATE void gemm_blocks(long k, const T* a, Stride row_stride, long k_stride, const B& b, T* c,
                                     long ldc, bool accumulate, Ahead ahead) {
  static_assert(M > 0 && N > 0, "a product has rows and columns");
  constexpr long columns = panel_columns(N), wide = columns / NR * NR;
  ahead.divide((M + MR - 1) / MR * ((N + NR - 1) / NR) * int((k + KC - 1) / KC));
  long first = 0;
  do {
    const long depth = k - first < 2 * KC ? (k - first > KC ? (k - first + 1) / 2 : k - first) : KC;
    const T* block = a + first * k_stride;
    for (long j = 0; j < wide; j += NR) {
      gemm_column<T, M, true>(depth, block, row_stride, k_stride, b.part(j * k + first * NR, first, j), c + j,
                              ldc, accumulate, ahead);
    }
    if constexpr (wide < columns) {
      gemm_column<T, M, false>(depth, block, row_stride, k_stride, b.part(wide * k + first * W, first, wide),
                               c + wide, ldc, accumulate, ahead);
    }
    first += depth;
    accumulate = true;
  } while (first < k);
}

template <int M, int N, class T, class Stride, class Ahead = NoneAhead>
TEGULA_CPU_TEMPLATE void gemm_panel(long k, const T* a, Stride row_stride, long k_stride, const T* b, T* c,
                                    long ldc, bool accumulate, Ahead ahead = {}) {
  gemm_blocks<M, N>(k, a, row_stride, k_stride, FullPanels<T>{b}, c, ldc, accumulate, ahead);
}
template <int M, int N, class T, class Stride, class S, bool Once, class Ahead = NoneAhead>
TEGULA_CPU_TEMPLATE void gemm_panel(long k, const T* a, Stride row_stride, long k_stride,
                                    const RowsOrPanels<T, S, Once>& b, T* c, long ldc, bool accumulate,
                                    Ahead ahead = {}) {
  gemm_blocks<M, N>(k, a, row_stride, k_stride, b, c, ldc, accumulate, ahead);
}

// The same for doubles: exact enough to check against, and plain. The same panel layout.
template <int M, int N, class Stride, class Ahead = NoneAhead>
static void gemm_panel(long k, const double* a, Stride row_stride, long k_stride, const double* b, double* c,
                       long ldc, bool accumulate, Ahead = {}) {
  for (long i = 0; i < M; ++i) {
    for (long j = 0; j < N; ++j) {
      double sum = 0;
      for (long p = 0; p < k; ++p) sum += a[i * row_stride + p * k_stride] * b[panel_index(k, N, p, j)];
      c[i * ldc + j] = accumulate ? c[i * ldc + j] + sum : sum;
    }
  }
}

TEGULA_CPU_END
