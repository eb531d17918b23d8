// W lanes of f64 (vd) and of i64 (vl), each as two registers. Doubles exist for checking results and 64-bit
// integers for addresses: these are complete, not fast.
#pragma once
#include "vector.hpp"

TEGULA_CPU_BEGIN

template <class Half>
struct Wide {
  Half low, high;
};
typedef Wide<half_d> vd;
typedef Wide<half_l> vl;

TEGULA_CPU_INLINE vm join_masks(half_l low, half_l high) {
  const half_i a = __builtin_convertvector(low, half_i), b = __builtin_convertvector(high, half_i);
#if TEGULA_CPU_W == 16
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif TEGULA_CPU_W == 8
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(a, b, 0, 1, 2, 3);
#endif
}

template <class V, class T>
TEGULA_CPU_TEMPLATE V map_lanes(V x, T f) {
  for (int i = 0; i < W / 2; ++i) {
    x.low[i] = f(x.low[i]);
    x.high[i] = f(x.high[i]);
  }
  return x;
}
template <class V, class T>
TEGULA_CPU_TEMPLATE V map_lanes(V x, V y, T f) {
  for (int i = 0; i < W / 2; ++i) {
    x.low[i] = f(x.low[i], y.low[i]);
    x.high[i] = f(x.high[i], y.high[i]);
  }
  return x;
}
template <class Half, class T>
TEGULA_CPU_TEMPLATE void set_lane(Wide<Half>& x, int i, T value) {
  if (i < W / 2)
    x.low[i] = value;
  else
    x.high[i - W / 2] = value;
}
template <class Half>
TEGULA_CPU_TEMPLATE auto lane(const Wide<Half>& x, int i) {
  return i < W / 2 ? x.low[i] : x.high[i - W / 2];
}
TEGULA_CPU_INLINE float lane(vf x, int i) { return x[i]; }
TEGULA_CPU_INLINE int32_t lane(vi x, int i) { return x[i]; }
TEGULA_CPU_INLINE uint32_t lane(vu x, int i) { return x[i]; }
TEGULA_CPU_INLINE void set_lane(vf& x, int i, float value) { x[i] = value; }
TEGULA_CPU_INLINE void set_lane(vi& x, int i, int32_t value) { x[i] = value; }
TEGULA_CPU_INLINE void set_lane(vu& x, int i, uint32_t value) { x[i] = value; }

TEGULA_CPU_INLINE vd splat(double x) { return {x - half_d{}, x - half_d{}}; }
TEGULA_CPU_INLINE vl splat(int64_t x) { return {x - half_l{}, x - half_l{}}; }

#define TEGULA_CPU_WIDE_OPERATOR(op)                              \
  template <class H>                                              \
  TEGULA_CPU_TEMPLATE Wide<H> operator op(Wide<H> a, Wide<H> b) { \
    return {a.low op b.low, a.high op b.high};                    \
  }
TEGULA_CPU_WIDE_OPERATOR(+)
TEGULA_CPU_WIDE_OPERATOR(-)
TEGULA_CPU_WIDE_OPERATOR(*)
TEGULA_CPU_WIDE_OPERATOR(&)
TEGULA_CPU_WIDE_OPERATOR(|)
TEGULA_CPU_WIDE_OPERATOR(^)
#undef TEGULA_CPU_WIDE_OPERATOR
TEGULA_CPU_INLINE vd operator/(vd a, vd b) { return {a.low / b.low, a.high / b.high}; }
template <class H>
TEGULA_CPU_TEMPLATE Wide<H> operator-(Wide<H> a) {
  return {-a.low, -a.high};
}
TEGULA_CPU_INLINE vl operator~(vl a) { return {~a.low, ~a.high}; }

#define TEGULA_CPU_WIDE_COMPARISON(op)                                       \
  template <class H>                                                         \
  TEGULA_CPU_TEMPLATE vm operator op(Wide<H> a, Wide<H> b) {                 \
    return join_masks((half_l)(a.low op b.low), (half_l)(a.high op b.high)); \
  }
TEGULA_CPU_WIDE_COMPARISON(<)
TEGULA_CPU_WIDE_COMPARISON(<=)
TEGULA_CPU_WIDE_COMPARISON(>)
TEGULA_CPU_WIDE_COMPARISON(>=)
TEGULA_CPU_WIDE_COMPARISON(==)
TEGULA_CPU_WIDE_COMPARISON(!=)
#undef TEGULA_CPU_WIDE_COMPARISON

template <class H>
TEGULA_CPU_TEMPLATE Wide<H> select(vm m, Wide<H> a, Wide<H> b) {
  for (int i = 0; i < W; ++i) {
    if (m[i]) set_lane(b, i, lane(a, i));
  }
  return b;
}
TEGULA_CPU_INLINE double select(bool m, double a, double b) { return m ? a : b; }
TEGULA_CPU_INLINE int64_t select(bool m, int64_t a, int64_t b) { return m ? a : b; }

TEGULA_CPU_INLINE bool isnan(double x) { return x != x; }
TEGULA_CPU_INLINE vm isnan(vd x) { return x != x; }
#if defined(__FMA__) && !defined(__OPTIMIZE__)
TEGULA_CPU_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
TEGULA_CPU_INLINE vd fma(vd a, vd b, vd c) {
  for (int i = 0; i < W; ++i) set_lane(c, i, __builtin_fma(lane(a, i), lane(b, i), lane(c, i)));
  return c;
}
#else
TEGULA_CPU_INLINE double fma(double a, double b, double c) { return a * b + c; }
TEGULA_CPU_INLINE vd fma(vd a, vd b, vd c) { return a * b + c; }
#endif
TEGULA_CPU_INLINE double abs(double x) { return __builtin_fabs(x); }
TEGULA_CPU_INLINE int64_t abs(int64_t x) { return x < 0 ? int64_t(0u - uint64_t(x)) : x; }
TEGULA_CPU_INLINE int64_t popcount(int64_t x) { return __builtin_popcountll(uint64_t(x)); }
TEGULA_CPU_INLINE double max(double a, double b) { return isnan(b) || a > b ? a : b; }
TEGULA_CPU_INLINE double min(double a, double b) { return isnan(b) || a < b ? a : b; }
TEGULA_CPU_INLINE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
TEGULA_CPU_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
TEGULA_CPU_INLINE int64_t add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
TEGULA_CPU_INLINE int64_t sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
TEGULA_CPU_INLINE int64_t mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
TEGULA_CPU_INLINE int64_t shl(int64_t a, int64_t n) {
  return uint64_t(n) < 64 ? int64_t(uint64_t(a) << n) : 0;
}
TEGULA_CPU_INLINE int64_t shr(int64_t a, int64_t n) { return a >> (uint64_t(n) < 64 ? n : 63); }
TEGULA_CPU_INLINE int64_t div(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? int64_t(0u - uint64_t(a)) : a / b;
}
TEGULA_CPU_INLINE int64_t mod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
TEGULA_CPU_INLINE int64_t floordiv(int64_t a, int64_t b) {
  const int64_t q = div(a, b);
  return mod(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
TEGULA_CPU_INLINE int64_t floormod(int64_t a, int64_t b) {
  const int64_t r = mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define TEGULA_CPU_WIDE_BINARY(V, T, name)                       \
  TEGULA_CPU_INLINE V name(V a, V b) {                           \
    return map_lanes(a, b, [](T x, T y) { return name(x, y); }); \
  }
TEGULA_CPU_WIDE_BINARY(vd, double, max)
TEGULA_CPU_WIDE_BINARY(vd, double, min)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, max)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, min)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, shl)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, shr)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, div)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, mod)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, floordiv)
TEGULA_CPU_WIDE_BINARY(vl, int64_t, floormod)
#undef TEGULA_CPU_WIDE_BINARY
TEGULA_CPU_INLINE vd abs(vd a) {
  return map_lanes(a, [](double x) { return abs(x); });
}
TEGULA_CPU_INLINE vl abs(vl a) {
  return map_lanes(a, [](int64_t x) { return abs(x); });
}
TEGULA_CPU_INLINE vl popcount(vl a) {
  return map_lanes(a, [](int64_t x) { return popcount(x); });
}
template <class H>
TEGULA_CPU_TEMPLATE Wide<H> max_into(Wide<H> best, Wide<H> x) {
  return max(best, x);
}
template <class H>
TEGULA_CPU_TEMPLATE Wide<H> min_into(Wide<H> best, Wide<H> x) {
  return min(best, x);
}

template <class H, class Combine>
TEGULA_CPU_TEMPLATE auto fold_lanes(Wide<H> x, Combine combine) {
  auto total = lane(x, 0);
  for (int i = 1; i < W; ++i) total = combine(total, lane(x, i));
  return total;
}
#define TEGULA_CPU_WIDE_REDUCTIONS(V, T)                      \
  TEGULA_CPU_INLINE T reduce_sum(V v) {                       \
    return fold_lanes(v, [](T x, T y) { return x + y; });     \
  }                                                           \
  TEGULA_CPU_INLINE T reduce_max(V v) {                       \
    return fold_lanes(v, [](T x, T y) { return max(x, y); }); \
  }                                                           \
  TEGULA_CPU_INLINE T reduce_min(V v) {                       \
    return fold_lanes(v, [](T x, T y) { return min(x, y); }); \
  }                                                           \
  TEGULA_CPU_INLINE T fold_max(V v) { return reduce_max(v); } \
  TEGULA_CPU_INLINE T fold_min(V v) { return reduce_min(v); } \
  TEGULA_CPU_INLINE T reduce_absmax(V v) { return reduce_max(abs(v)); }
TEGULA_CPU_WIDE_REDUCTIONS(vd, double)
TEGULA_CPU_WIDE_REDUCTIONS(vl, int64_t)
#undef TEGULA_CPU_WIDE_REDUCTIONS

TEGULA_CPU_END
