// Elementary functions of vf, each with its one-lane version for float, and libm's for f64.
//
// Error in units in the last place: not above 2 anywhere; measured over every 257th float (the largest of the
// three instruction sets; math_test.cpp holds the bounds):
//   erf 1.3     pow 0.5
//   exp2 1.37   exp 0.99   log2 1.38   log 0.85   tanh 1.31   sin 1.46   cos 1.47   rsqrt 1.5   sqrt, rcp 0.5
// Special values are those of C's library: exp2(-inf) = 0, exp2(+inf) = inf, log2(0) = -inf, log2(x < 0) =
// NaN, NaN gives NaN. Subnormal arguments and results are exact to the same bounds, but for exp2, whose
// results below 2^-126 are 0: they are the weights that a softmax forgets, and processors multiply by
// subnormal numbers so slowly that attention with distant scores took 13 times as long. Coefficients are
// minimax fits of the relative error on the reduced interval.
#pragma once
#include "convert.hpp"

TEGULA_CPU_BEGIN

// p(x) with the coefficients in ascending order.
TEGULA_CPU_INLINE vf polynomial(vf, float c) { return splat(c); }
template <class... C>
TEGULA_CPU_TEMPLATE vf polynomial(vf x, float c, C... higher) {
  return polynomial(x, higher...) * x + c;
}

TEGULA_CPU_INLINE vf clamp(vf x, float low, float high) {  // NaN stays NaN
  x = x < low ? splat(low) : x;
  return x > high ? splat(high) : x;
}

// ---- rounding to integers ---------------------------------------------------------------------------------

#if defined(TEGULA_CPU_AVX512)
#define TEGULA_CPU_ROUND(x, mode) __builtin_ia32_rndscaleps_mask(x, mode, vf{}, (unsigned short)-1, 4)
#elif defined(TEGULA_CPU_AVX2)
#define TEGULA_CPU_ROUND(x, mode) __builtin_ia32_roundps256(x, mode)
#endif
#if defined(TEGULA_CPU_ROUND)
TEGULA_CPU_INLINE vf round(vf x) { return TEGULA_CPU_ROUND(x, 8); }  // ties to even
TEGULA_CPU_INLINE vf floor(vf x) { return TEGULA_CPU_ROUND(x, 9); }
TEGULA_CPU_INLINE vf ceil(vf x) { return TEGULA_CPU_ROUND(x, 10); }
#undef TEGULA_CPU_ROUND
#else
TEGULA_CPU_INLINE vf round(vf x) {
  const vf rounded = (abs(x) + 0x1p23f) - 0x1p23f;
  return abs(x) < 0x1p23f ? copysign(rounded, x) : x;
}
TEGULA_CPU_INLINE vf floor(vf x) {
  const vf r = round(x);
  return r > x ? copysign(r - 1.0f, x) : r;
}
TEGULA_CPU_INLINE vf ceil(vf x) {
  const vf r = round(x);
  return r < x ? copysign(r + 1.0f, x) : r;
}
#endif

// ---- roots ------------------------------------------------------------------------------------------------

TEGULA_CPU_INLINE vf sqrt(vf x) {
#if defined(TEGULA_CPU_AVX512) && defined(__clang__)
  return __builtin_ia32_sqrtps512(x, 4);
#elif defined(TEGULA_CPU_AVX512)
  return __builtin_ia32_sqrtps512_mask(x, vf{}, (unsigned short)-1, 4);
#elif defined(TEGULA_CPU_AVX2)
  return __builtin_ia32_sqrtps256(x);
#elif defined(__SSE2__)
  return __builtin_ia32_sqrtps(x);
#else
  for (int i = 0; i < W; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}
TEGULA_CPU_INLINE vf rcp(vf x) { return 1.0f / x; }
TEGULA_CPU_INLINE vf rsqrt(vf x) { return 1.0f / sqrt(x); }

// ---- exponentials -----------------------------------------------------------------------------------------

// x * 2^n for whole |n| < 200, rounded once.
TEGULA_CPU_INLINE vf scale_by_power(vf x, vf n) {
#if defined(TEGULA_CPU_AVX512)
  return __builtin_ia32_scalefps512_mask(x, n, vf{}, (unsigned short)-1, 4);
#else
  const vi whole = __builtin_convertvector(n == n ? n : vf{}, vi), half = whole >> 1;
  return x * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
#endif
}

// Added to and subtracted from |x| < 2^22 it rounds to the nearest integer.
constexpr float round_magic = 0x1.8p23f;

#if defined(TEGULA_CPU_AVX512)
// The instructions take the integer part (reduce: x - floor(x), zero for infinities; scale: floor)
// themselves.
TEGULA_CPU_INLINE vf exp2(vf x) {
#if defined(__clang__)
  const vf f = __builtin_ia32_reduceps512_mask(x, 1, vf{}, (unsigned short)-1, 4);
#else
  const vf f = __builtin_ia32_reduceps512_mask(x, 1, vf{}, (unsigned short)-1);
#endif
  const vf p = polynomial(f, 1.0f, 0x1.62e42cp-1f, 0x1.ebfd58p-3f, 0x1.c68912p-5f, 0x1.3d0b92p-7f,
                          0x1.46d64cp-10f, 0x1.c5417ap-13f);
  return x < -126.0f ? vf{} : scale_by_power(p, x);
}
#else
TEGULA_CPU_INLINE vf exp2(vf x) {
  x = clamp(x, -151.0f, 129.0f);
  const vf n = (x + round_magic) - round_magic, f = x - n;
  const vf p = polynomial(f, 1.0f, 0x1.62e43p-1f, 0x1.ebfbdcp-3f, 0x1.c6aee8p-5f, 0x1.3b2d4cp-7f,
                          0x1.5f3e54p-10f, 0x1.41fbbcp-13f);
  return x < -126.0f ? vf{} : scale_by_power(p, n);
}
#endif

// ln 2 in two parts; products of the first with whole numbers below 2^14 are exact.
constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;

TEGULA_CPU_INLINE vf exp(vf x) {
  x = clamp(x, -104.0f, 89.0f);
  const vf n = (x * 0x1.715476p+0f + round_magic) - round_magic;
  const vf f = (x - n * ln2_high) - n * ln2_low;
  const vf tail =
      polynomial(f, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f);
  return scale_by_power(1.0f + (f + f * f * tail), n);
}

TEGULA_CPU_INLINE vf tanh(vf x) {
  const vf a = abs(x), z = x * x;
  const vf tail =
      polynomial(z, -0x1.555532p-2f, 0x1.110726p-3f, -0x1.b83c5ap-5f, 0x1.52269ap-6f, -0x1.75e1c4p-8f);
  const vf small = a + a * z * tail;
  const vf large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return copysign(a < 0.625f ? small : large, x);
}

// By itself near zero, elsewhere by -log(1 - erf).
TEGULA_CPU_INLINE vf erf(vf x) {
  const vf a = abs(x), z = x * x;
  const vf tail = polynomial(z, 0x1.06eba8p-3f, -0x1.812744p-2f, 0x1.ce2e84p-4f, -0x1.b819a6p-6f,
                             0x1.553abap-8f, -0x1.ae7f9p-11f, 0x1.6bdf4ap-14f);
  const vf b = a > 4.0f ? splat(4.0f) : a;
  const vf logarithm =
      b * polynomial(b, 0x1.20def6p+0f, 0x1.45df26p-1f, 0x1.a6bf36p-4f, -0x1.4512ccp-6f, 0x1.0339f4p-11f,
                     0x1.54a5c4p-10f, -0x1.1367fap-11f, 0x1.cd9962p-14f, -0x1.ad39d8p-17f, 0x1.5dd66ep-21f);
  const vf large = 1.0f - exp(-logarithm);
  return copysign(a < 0.875f ? a + a * tail : large, x);
}

// ---- logarithms -------------------------------------------------------------------------------------------

// x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x.
struct Split {
  vf e, f;
};
TEGULA_CPU_INLINE Split split_exponent(vf x) {
  const vm tiny = x < 0x1p-126f;
  const vi bits = (vi)(tiny ? x * 0x1p23f : x);
  const vi e = (bits - 0x3f3504f3) >> 23;
  const vf exponent = to_f32(e) - (tiny ? splat(23.0f) : vf{});
  return {exponent, (vf)(bits - (e << 23)) - 1.0f};
}
// log(1 + f) - f
TEGULA_CPU_INLINE vf log1p_tail(vf f) {
  const vf cubic = polynomial(f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f,
                              0x1.22da1cp-3f, -0x1.0d8542p-3f, 0x1.055b72p-3f, -0x1.38b58ap-4f);
  return pinned(f * f * (f * cubic - 0.5f));
}
TEGULA_CPU_INLINE vf log_of_special(vf x, vf result) {
  result = x == __builtin_inff() ? x : result;
  result = x == 0.0f ? splat(-__builtin_inff()) : result;
  return x >= 0.0f ? result : splat(__builtin_nanf(""));
}

TEGULA_CPU_INLINE vf log(vf x) {
  const Split s = split_exponent(x);
  return log_of_special(x, s.e * ln2_high + (s.f + (s.e * ln2_low + log1p_tail(s.f))));
}
// log2(e) is 1 + 0.4427: adding f itself keeps the product's rounding small beside it.
TEGULA_CPU_INLINE vf log2(vf x) {
  constexpr float log2e_minus_1 = 0.44269504088896340736f;
  const Split s = split_exponent(x);
  const vf tail = log1p_tail(s.f);
  return log_of_special(x, s.e + (s.f + (tail + (s.f * log2e_minus_1 + pinned(tail * log2e_minus_1)))));
}

// ---- sine and cosine --------------------------------------------------------------------------------------

TEGULA_CPU_INLINE half_d widen_low(vf x) {
#if TEGULA_CPU_W == 16
  return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7), half_d);
#elif TEGULA_CPU_W == 8
  return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), half_d);
#else
  return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1), half_d);
#endif
}
TEGULA_CPU_INLINE half_d widen_high(vf x) {
#if TEGULA_CPU_W == 16
  return widen_low(swap_lanes_8(x));
#elif TEGULA_CPU_W == 8
  return widen_low(swap_lanes_4(x));
#else
  return widen_low(swap_lanes_2(x));
#endif
}
TEGULA_CPU_INLINE vf join(half_f a, half_f b) {
#if TEGULA_CPU_W == 16
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif TEGULA_CPU_W == 8
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(a, b, 0, 1, 2, 3);
#endif
}

// The remainder of x by pi / 2, in doubles since it may be tiny, and the quadrant modulo 4; |x| < 2^20.
struct Quadrants {
  half_f remainder;
  half_l quadrant;
};
TEGULA_CPU_INLINE Quadrants reduce_angle(half_d x) {
  const half_d shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = shifted - 0x1.8p52;
  const half_d remainder = (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
  return {__builtin_convertvector(remainder, half_f), (half_l)shifted};
}

// sin(x + turn * pi / 2). Angles beyond 2^20 are left to libm, lane by lane.
static inline __attribute__((noinline)) vf sine(vf x, int turn) {
  const vm near = abs(x) < 0x1p20f;
  const vf angle = near ? x : vf{};
  const Quadrants low = reduce_angle(widen_low(angle)), high = reduce_angle(widen_high(angle));
  const vf r = join(low.remainder, high.remainder), z = r * r;
  const vi quadrant = join_masks(low.quadrant, high.quadrant) + turn;
  const vf s = r + r * z * polynomial(z, -0x1.555556p-3f, 0x1.111108p-7f, -0x1.a00f7ep-13f, 0x1.6cd1bp-19f);
  const vf c = polynomial(z, 1.0f, -0.5f, 0x1.55554ap-5f, -0x1.6c0c32p-10f, 0x1.99eb4ap-16f);
  const vf value = (quadrant & 1) != 0 ? c : s;
  vf result = (vf)((vi)value ^ ((quadrant & 2) << 30));
  if (!all(near)) {
    for (int i = 0; i < W; ++i) {
      const double far = double(x[i]);
      if (!near[i]) result[i] = float(turn ? __builtin_cos(far) : __builtin_sin(far));
    }
  }
  return result;
}
TEGULA_CPU_INLINE vf sin(vf x) { return sine(x, 0); }
TEGULA_CPU_INLINE vf cos(vf x) { return sine(x, 1); }

// ---- powers -----------------------------------------------------------------------------------------------

// libm's of doubles, lane by lane, rounded.
TEGULA_CPU_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
TEGULA_CPU_INLINE vd pow(vd a, vd b) {
  return map_lanes(a, b, [](double x, double y) { return __builtin_pow(x, y); });
}
TEGULA_CPU_INLINE float pow(float x, float y) { return float(__builtin_pow(double(x), double(y))); }
TEGULA_CPU_INLINE vf pow(vf x, vf y) {
  for (int i = 0; i < W; ++i) x[i] = pow(x[i], y[i]);
  return x;
}

// ---- one lane, and doubles --------------------------------------------------------------------------------

#define TEGULA_CPU_MATH(name, of_double)                        \
  TEGULA_CPU_ONE_LANE(float, name, float)                       \
  TEGULA_CPU_INLINE double name(double x) { return of_double; } \
  TEGULA_CPU_INLINE vd name(vd v) {                             \
    return map_lanes(v, [](double x) { return of_double; });    \
  }
TEGULA_CPU_MATH(round, __builtin_rint(x))
TEGULA_CPU_MATH(floor, __builtin_floor(x))
TEGULA_CPU_MATH(ceil, __builtin_ceil(x))
TEGULA_CPU_MATH(sqrt, __builtin_sqrt(x))
TEGULA_CPU_MATH(rsqrt, 1.0 / __builtin_sqrt(x))
TEGULA_CPU_MATH(rcp, 1.0 / x)
TEGULA_CPU_MATH(exp2, __builtin_exp2(x))
TEGULA_CPU_MATH(exp, __builtin_exp(x))
TEGULA_CPU_MATH(log2, __builtin_log2(x))
TEGULA_CPU_MATH(log, __builtin_log(x))
TEGULA_CPU_MATH(tanh, __builtin_tanh(x))
TEGULA_CPU_MATH(sin, __builtin_sin(x))
TEGULA_CPU_MATH(cos, __builtin_cos(x))
TEGULA_CPU_MATH(erf, __builtin_erf(x))
#undef TEGULA_CPU_MATH

TEGULA_CPU_END
