// Arithmetic on vectors of W f32, i32 or u32, beyond the operators that the compiler gives them.
//
// NaN rule of min and max (all forms, reductions too): if one operand is NaN the result is the other one, as
// in IEEE 754 maxNum and CUDA's fmaxf; if both are, NaN. Which zero max(+0, -0) returns is unspecified.
// Comparisons with NaN are false, except !=.
#pragma once
#include "isa.hpp"

TEGULA_CPU_BEGIN

TEGULA_CPU_INLINE vf splat(float x) { return x - vf{}; }
TEGULA_CPU_INLINE vi splat(int32_t x) { return x - vi{}; }
TEGULA_CPU_INLINE vu splat(uint32_t x) { return x - vu{}; }
TEGULA_CPU_INLINE vm splat(bool x) { return splat(-int32_t(x)); }

TEGULA_CPU_INLINE vi iota() {
#if TEGULA_CPU_W == 16
  return vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif TEGULA_CPU_W == 8
  return vi{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return vi{0, 1, 2, 3};
#endif
}
// first, first + 1, ...
TEGULA_CPU_INLINE vi iota(int32_t first) { return first + iota(); }

// Lanes [0, n), and lanes [begin, end); any n, begin, end.
TEGULA_CPU_INLINE vm lanes_below(long n) { return iota() < splat(int32_t(n < 0 ? 0 : n > W ? W : n)); }
TEGULA_CPU_INLINE vm lanes_between(long begin, long end) { return lanes_below(end) & ~lanes_below(begin); }

TEGULA_CPU_INLINE vf as_f32(vi x) { return (vf)x; }
TEGULA_CPU_INLINE vf as_f32(vu x) { return (vf)x; }
TEGULA_CPU_INLINE vi as_i32(vf x) { return (vi)x; }
TEGULA_CPU_INLINE vi as_i32(vu x) { return (vi)x; }
TEGULA_CPU_INLINE vu as_u32(vf x) { return (vu)x; }
TEGULA_CPU_INLINE vu as_u32(vi x) { return (vu)x; }
TEGULA_CPU_INLINE float as_f32(uint32_t x) {
  float y;
  __builtin_memcpy(&y, &x, 4);
  return y;
}
TEGULA_CPU_INLINE float as_f32(int32_t x) { return as_f32(uint32_t(x)); }
TEGULA_CPU_INLINE uint32_t as_u32(float x) {
  uint32_t y;
  __builtin_memcpy(&y, &x, 4);
  return y;
}
TEGULA_CPU_INLINE uint32_t as_u32(int32_t x) { return uint32_t(x); }
TEGULA_CPU_INLINE int32_t as_i32(float x) { return int32_t(as_u32(x)); }
TEGULA_CPU_INLINE int32_t as_i32(uint32_t x) { return int32_t(x); }

TEGULA_CPU_INLINE vf select(vm m, vf a, vf b) { return m ? a : b; }
TEGULA_CPU_INLINE vi select(vm m, vi a, vi b) { return m ? a : b; }
TEGULA_CPU_INLINE vu select(vm m, vu a, vu b) { return m ? a : b; }
TEGULA_CPU_INLINE float select(bool m, float a, float b) { return m ? a : b; }
TEGULA_CPU_INLINE int32_t select(bool m, int32_t a, int32_t b) { return m ? a : b; }
TEGULA_CPU_INLINE uint32_t select(bool m, uint32_t a, uint32_t b) { return m ? a : b; }

TEGULA_CPU_INLINE vm isnan(vf x) { return x != x; }
TEGULA_CPU_INLINE bool isnan(float x) { return x != x; }

// a * b + c with one rounding where the target has the instruction, with two elsewhere. Compilers that optimise
// contract the two operations (-ffp-contract=fast), of a vector too; others need it said, lane by lane.
#if defined(__FMA__) && !defined(__OPTIMIZE__)
TEGULA_CPU_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TEGULA_CPU_INLINE vf fma(vf a, vf b, vf c) {
  for (int i = 0; i < W; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
#else
TEGULA_CPU_INLINE float fma(float a, float b, float c) { return a * b + c; }
TEGULA_CPU_INLINE vf fma(vf a, vf b, vf c) { return a * b + c; }
#endif

// The value as it is, which the compiler may not look into: a product after it is rounded by itself. Where
// two products are added, which of them an fma would swallow is the compiler's choice, and scalars and
// vectors would differ in the last bit; so they would where constants are folded, which rounds every step.
template <class V>
TEGULA_CPU_TEMPLATE V pinned(V x) {
#if defined(__AVX512F__)
  asm("" : "+v"(x));
#elif defined(__SSE2__)
  asm("" : "+x"(x));
#endif
  return x;
}

TEGULA_CPU_INLINE vf abs(vf x) { return (vf)((vu)x & 0x7fffffffu); }
TEGULA_CPU_INLINE float abs(float x) { return as_f32(as_u32(x) & 0x7fffffffu); }
TEGULA_CPU_INLINE vi abs(vi x) { return x < 0 ? (vi)(0u - (vu)x) : x; }
TEGULA_CPU_INLINE int32_t abs(int32_t x) { return x < 0 ? int32_t(0u - uint32_t(x)) : x; }
TEGULA_CPU_INLINE vu popcount(vu x) {
  x = x - ((x >> 1) & 0x55555555u);
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (x * 0x01010101u) >> 24;
}
TEGULA_CPU_INLINE vi popcount(vi x) { return (vi)popcount((vu)x); }
TEGULA_CPU_INLINE int32_t popcount(int32_t x) { return __builtin_popcount(uint32_t(x)); }
TEGULA_CPU_INLINE uint32_t popcount(uint32_t x) { return uint32_t(__builtin_popcount(x)); }
TEGULA_CPU_INLINE uint32_t mul_high(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
// By products of 16 bits each.
TEGULA_CPU_INLINE vu mul_high(vu a, vu b) {
  const vu a0 = a & 0xffffu, a1 = a >> 16, b0 = b & 0xffffu, b1 = b >> 16;
  const vu middle = a1 * b0 + (a0 * b0 >> 16), other = a0 * b1 + (middle & 0xffffu);
  return a1 * b1 + (middle >> 16) + (other >> 16);
}
TEGULA_CPU_INLINE vf copysign(vf magnitude, vf sign) {
  return (vf)(((vu)magnitude & 0x7fffffffu) | ((vu)sign & 0x80000000u));
}

// One instruction each, for running extremes: `best` must not be NaN and then the result is not either,
// because a NaN in x leaves it as it is.
TEGULA_CPU_INLINE vf max_into(vf best, vf x) { return x > best ? x : best; }
TEGULA_CPU_INLINE vf min_into(vf best, vf x) { return x < best ? x : best; }
TEGULA_CPU_INLINE float max_into(float best, float x) { return x > best ? x : best; }
TEGULA_CPU_INLINE float min_into(float best, float x) { return x < best ? x : best; }

TEGULA_CPU_INLINE vf max(vf a, vf b) { return isnan(b) ? a : max_into(b, a); }
TEGULA_CPU_INLINE vf min(vf a, vf b) { return isnan(b) ? a : min_into(b, a); }
TEGULA_CPU_INLINE float max(float a, float b) { return isnan(b) ? a : max_into(b, a); }
TEGULA_CPU_INLINE float min(float a, float b) { return isnan(b) ? a : min_into(b, a); }

#define TEGULA_CPU_INTEGER_EXTREMES(V)                         \
  TEGULA_CPU_INLINE V max(V a, V b) { return a > b ? a : b; }  \
  TEGULA_CPU_INLINE V min(V a, V b) { return a < b ? a : b; }  \
  TEGULA_CPU_INLINE V max_into(V a, V b) { return max(a, b); } \
  TEGULA_CPU_INLINE V min_into(V a, V b) { return min(a, b); }
TEGULA_CPU_INTEGER_EXTREMES(vi)
TEGULA_CPU_INTEGER_EXTREMES(vu)
TEGULA_CPU_INTEGER_EXTREMES(int32_t)
TEGULA_CPU_INTEGER_EXTREMES(uint32_t)
#undef TEGULA_CPU_INTEGER_EXTREMES

// Wrapping arithmetic of signed scalars; vectors wrap by themselves.
TEGULA_CPU_INLINE int32_t add(int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }
TEGULA_CPU_INLINE int32_t sub(int32_t a, int32_t b) { return int32_t(uint32_t(a) - uint32_t(b)); }
TEGULA_CPU_INLINE int32_t mul(int32_t a, int32_t b) { return int32_t(uint32_t(a) * uint32_t(b)); }

// A count that is not in [0, 32) shifts all bits out. The right shift of a signed value keeps its sign.
TEGULA_CPU_INLINE vu shl(vu a, vu n) { return n < 32u ? a << (n & 31u) : vu{}; }
TEGULA_CPU_INLINE vu shr(vu a, vu n) { return n < 32u ? a >> (n & 31u) : vu{}; }
TEGULA_CPU_INLINE vi shl(vi a, vi n) { return (vi)shl((vu)a, (vu)n); }
TEGULA_CPU_INLINE vi shr(vi a, vi n) { return a >> ((vu)n < 32u ? n : 31 + vi{}); }
TEGULA_CPU_INLINE uint32_t shl(uint32_t a, uint32_t n) { return n < 32 ? a << n : 0; }
TEGULA_CPU_INLINE uint32_t shr(uint32_t a, uint32_t n) { return n < 32 ? a >> n : 0; }
TEGULA_CPU_INLINE int32_t shl(int32_t a, int32_t n) { return int32_t(shl(uint32_t(a), uint32_t(n))); }
TEGULA_CPU_INLINE int32_t shr(int32_t a, int32_t n) { return a >> (uint32_t(n) < 32 ? n : 31); }

// Truncating division that never traps: x / 0 and x % 0 are 0, INT_MIN / -1 wraps to INT_MIN.
TEGULA_CPU_INLINE uint32_t div(uint32_t a, uint32_t b) { return b ? a / b : 0; }
TEGULA_CPU_INLINE uint32_t mod(uint32_t a, uint32_t b) { return b ? a % b : 0; }
TEGULA_CPU_INLINE int32_t div(int32_t a, int32_t b) {
  return b == 0 ? 0 : b == -1 ? int32_t(0u - uint32_t(a)) : a / b;
}
TEGULA_CPU_INLINE int32_t mod(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }
// Rounding towards minus infinity; the remainder has the sign of b.
TEGULA_CPU_INLINE int32_t floordiv(int32_t a, int32_t b) {
  const int32_t q = div(a, b);
  return mod(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
TEGULA_CPU_INLINE int32_t floormod(int32_t a, int32_t b) {
  const int32_t r = mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define TEGULA_CPU_BY_LANE(V, name)                      \
  TEGULA_CPU_INLINE V name(V a, V b) {                   \
    for (int i = 0; i < W; ++i) a[i] = name(a[i], b[i]); \
    return a;                                            \
  }
TEGULA_CPU_BY_LANE(vi, div)
TEGULA_CPU_BY_LANE(vi, mod)
TEGULA_CPU_BY_LANE(vi, floordiv)
TEGULA_CPU_BY_LANE(vi, floormod)
TEGULA_CPU_BY_LANE(vu, div)
TEGULA_CPU_BY_LANE(vu, mod)
#undef TEGULA_CPU_BY_LANE

// The vector with its halves, quarters, ... swapped: what a reduction tree folds with.
template <class V>
TEGULA_CPU_TEMPLATE V swap_lanes_1(V x) {
#if TEGULA_CPU_W == 16
  return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif TEGULA_CPU_W == 8
  return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
#else
  return __builtin_shufflevector(x, x, 1, 0, 3, 2);
#endif
}
template <class V>
TEGULA_CPU_TEMPLATE V swap_lanes_2(V x) {
#if TEGULA_CPU_W == 16
  return __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
#elif TEGULA_CPU_W == 8
  return __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
#else
  return __builtin_shufflevector(x, x, 2, 3, 0, 1);
#endif
}
#if TEGULA_CPU_W >= 8
template <class V>
TEGULA_CPU_TEMPLATE V swap_lanes_4(V x) {
#if TEGULA_CPU_W == 16
  return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
#else
  return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
#endif
}
#endif
#if TEGULA_CPU_W == 16
template <class V>
TEGULA_CPU_TEMPLATE V swap_lanes_8(V x) {
  return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
}
#endif

// Reductions over the lanes: a balanced tree, so the result does not depend on where the values came from.
template <class V, class Combine>
TEGULA_CPU_TEMPLATE auto fold_lanes(V x, Combine combine) {
#if TEGULA_CPU_W == 16
  x = combine(x, swap_lanes_8(x));
#endif
#if TEGULA_CPU_W >= 8
  x = combine(x, swap_lanes_4(x));
#endif
  x = combine(x, swap_lanes_2(x));
  x = combine(x, swap_lanes_1(x));
  return x[0];
}

// fold_max and fold_min are for lanes that are not NaN.
#define TEGULA_CPU_REDUCTIONS(V, T)                                \
  TEGULA_CPU_INLINE T reduce_sum(V x) {                            \
    return fold_lanes(x, [](V a, V b) { return a + b; });          \
  }                                                                \
  TEGULA_CPU_INLINE T reduce_max(V x) {                            \
    return fold_lanes(x, [](V a, V b) { return max(a, b); });      \
  }                                                                \
  TEGULA_CPU_INLINE T reduce_min(V x) {                            \
    return fold_lanes(x, [](V a, V b) { return min(a, b); });      \
  }                                                                \
  TEGULA_CPU_INLINE T fold_max(V x) {                              \
    return fold_lanes(x, [](V a, V b) { return max_into(a, b); }); \
  }                                                                \
  TEGULA_CPU_INLINE T fold_min(V x) {                              \
    return fold_lanes(x, [](V a, V b) { return min_into(a, b); }); \
  }
TEGULA_CPU_REDUCTIONS(vf, float)
TEGULA_CPU_REDUCTIONS(vi, int32_t)
TEGULA_CPU_REDUCTIONS(vu, uint32_t)
#undef TEGULA_CPU_REDUCTIONS
TEGULA_CPU_INLINE float reduce_absmax(vf x) { return reduce_max(abs(x)); }
TEGULA_CPU_INLINE int32_t reduce_absmax(vi x) { return reduce_max(abs(x)); }

TEGULA_CPU_INLINE bool any(vm m) {
  return fold_lanes(m, [](vm a, vm b) { return a | b; }) != 0;
}
TEGULA_CPU_INLINE bool all(vm m) {
  return fold_lanes(m, [](vm a, vm b) { return a & b; }) != 0;
}

TEGULA_CPU_END
