// Conversions between element types, in registers.
//
// Types of less than 32 bits are computed in 32: a tile of bf16, f16, e4m3 or e5m2 is kept as f32 that holds
// rounded values (round_bf16, ...), a tile of i8, i16, u8 as i32 that holds wrapped values (wrap_i8,
// ...). Floats round to nearest even, subnormals included, and keep NaN. fp8 saturates: beyond +-448 (e4m3)
// and +-57344 (e5m2), infinities included, the largest finite value is stored. Float to integer truncates and
// saturates, NaN gives 0; integer to narrower integer wraps.
#pragma once
#include "wide.hpp"

TEGULA_CPU_BEGIN

// Makes the one-lane version of a vector function, so that scalars and vectors agree bit for bit.
#define TEGULA_CPU_ONE_LANE(result, name, argument) \
  TEGULA_CPU_INLINE result name(argument x) { return name(pinned(splat(x)))[0]; }

// ---- rounding in f32 -------------------------------------------------------------------------------------

// Rounds the magnitude's bits to `dropped` fewer mantissa bits, ties to even. Carries into the exponent
// rightly.
TEGULA_CPU_INLINE vu drop_mantissa(vu bits, int dropped) {
  const uint32_t half = (1u << (dropped - 1)) - 1;
  return (bits + half + ((bits >> dropped) & 1u)) & ~((1u << dropped) - 1);
}

TEGULA_CPU_INLINE vf quiet(vf nan) { return (vf)((vu)nan | 0x00400000u); }

TEGULA_CPU_INLINE vf round_bf16(vf x) {
  const vf quieted = (vf)((vu)quiet(x) & 0xffff0000u);
  return isnan(x) ? quieted : (vf)drop_mantissa((vu)x, 16);
}

// Below the smallest normal all values are multiples of one quantum, and adding the power of two whose unit
// in the last place is that quantum makes the hardware round to it.
TEGULA_CPU_INLINE vf round_small_float(vf x, int dropped, float smallest_normal, float shifter,
                                       float overflow, float beyond) {
  const vf magnitude = abs(x);
  const vf normal = (vf)drop_mantissa((vu)magnitude, dropped);
  const vf subnormal = (magnitude + shifter) - shifter;
  vf rounded = magnitude < smallest_normal ? subnormal : normal;
  rounded = rounded > overflow ? splat(beyond) : rounded;
  return isnan(x) ? quiet(x) : copysign(rounded, x);
}
TEGULA_CPU_INLINE vf round_f16(vf x) {
  return round_small_float(x, 13, 0x1p-14f, 0.5f, 65504.0f, __builtin_inff());
}
TEGULA_CPU_INLINE vf round_e4m3(vf x) { return round_small_float(x, 20, 0x1p-6f, 0x1p14f, 448.0f, 448.0f); }
TEGULA_CPU_INLINE vf round_e5m2(vf x) {
  return round_small_float(x, 21, 0x1p-14f, 0x1p7f, 57344.0f, 57344.0f);
}

// ---- f32 and the bits of small floats, in the low bits of 32-bit lanes ------------------------------------

TEGULA_CPU_INLINE vu bits_bf16(vf x) { return (vu)round_bf16(x) >> 16; }
TEGULA_CPU_INLINE vf from_bf16(vu bits) { return (vf)(bits << 16); }

// Bits of a value that the format holds: mantissa of 23 - dropped bits, exponent bias 127 - rebias.
TEGULA_CPU_INLINE vu pack_small_float(vf rounded, int dropped, int rebias, float smallest_normal,
                                      float subnormals_per_one, uint32_t nan) {
  const vf magnitude = abs(rounded);
  const vu normal = ((vu)magnitude >> dropped) - (uint32_t(rebias) << (23 - dropped));
  const vf count = magnitude < smallest_normal ? magnitude * subnormals_per_one : vf{};
  const vu subnormal = (vu) __builtin_convertvector(count, vi);
  const vu packed = magnitude < smallest_normal ? subnormal : normal;
  return isnan(rounded) ? splat(nan) : packed;
}
TEGULA_CPU_INLINE vu sign_bit(vf x, int at) { return ((vu)x >> 31) << at; }

// The magnitude, at most `limit`; of NaN any that is not above it.
TEGULA_CPU_INLINE vf limited_magnitude(vf x, float limit) {
#if defined(TEGULA_CPU_AVX512)
  vf result;
  asm("vrangeps $0xa, %2, %1, %0" : "=v"(result) : "v"(x), "v"(splat(limit)));
  return result;
#else
  const vf magnitude = abs(x);
  return magnitude < limit ? magnitude : splat(limit);
#endif
}
// Rounded and packed at once. Added to the power of two whose unit is the smallest number, small ones leave
// their bits in its last ones.
TEGULA_CPU_INLINE vu bits_e4m3(vf x) {
  const vf magnitude = limited_magnitude(x, 448.0f);
  const vu bits = (vu)magnitude;
  const vu normal = (bits + (0x7ffffu - (120u << 23)) + ((bits >> 20) & 1u)) >> 20;
  const vu small = (vu)(magnitude + 0x1p14f) - 0x46800000u;
  const vu packed = magnitude < 0x1p-6f ? small : normal;
  return (isnan(x) ? splat(0x7fu) : packed) | (((vu)x >> 24) & 0x80u);
}
TEGULA_CPU_INLINE vu bits_e5m2(vf x) {
  return pack_small_float(round_e5m2(x), 21, 112, 0x1p-14f, 0x1p16f, 0x7e) | sign_bit(x, 7);
}

TEGULA_CPU_INLINE vf unpack_small_float(vu magnitude, int dropped, int rebias, float subnormal) {
  const vf normal = (vf)((magnitude << dropped) + (uint32_t(rebias) << 23));
  const vf small = __builtin_convertvector((vi)magnitude, vf) * subnormal;
  return magnitude < (1u << (23 - dropped)) ? small : normal;
}
// x * power, a power of two from 2^64 on: small floats whose bits stand in those of a larger one. Those below
// the least normal number of f32 would cost 150 cycles in a product.
TEGULA_CPU_INLINE vf scaled_bits(vf x, vf power) {
  const vu magnitude = (vu)x & 0x7fffffffu;
  const vm is_small = magnitude < 0x800000u;
  const vf small = __builtin_convertvector((vi)magnitude, vf) * (power * 0x1p-100f * 0x1p-49f);
  const vf large = (is_small ? vf{} : x) * power;
  return is_small ? (vf)((vu)small | ((vu)x & 0x80000000u)) : large;
}
TEGULA_CPU_INLINE vf from_e4m3(vu bits) {
  const vu magnitude = bits & 0x7fu;
  vf x = unpack_small_float(magnitude, 20, 120, 0x1p-9f);
  x = magnitude == 0x7fu ? splat(__builtin_nanf("")) : x;
  return (vf)((vu)x | ((bits & 0x80u) << 24));
}
TEGULA_CPU_INLINE vf from_e5m2(vu bits) {
  const vu magnitude = bits & 0x7fu;
  vf x = unpack_small_float(magnitude, 21, 112, 0x1p-16f);
  x = magnitude == 0x7cu ? splat(__builtin_inff()) : x;
  x = magnitude > 0x7cu ? splat(__builtin_nanf("")) : x;
  return (vf)((vu)x | ((bits & 0x80u) << 24));
}

// f16 by integer arithmetic, for targets without the instructions.
TEGULA_CPU_INLINE vu bits_f16_generic(vf x) {
  const vf rounded = round_f16(x);
  vu bits = pack_small_float(rounded, 13, 112, 0x1p-14f, 0x1p24f, 0x7e00);
  bits = abs(rounded) == __builtin_inff() ? splat(0x7c00u) : bits;
  bits = isnan(x) ? (((vu)x >> 13) & 0x3ffu) | 0x7e00u : bits;
  return bits | sign_bit(x, 15);
}
TEGULA_CPU_INLINE vf from_f16_generic(vu bits) {
  const vu magnitude = bits & 0x7fffu;
  vf x = unpack_small_float(magnitude, 13, 112, 0x1p-24f);
  x = magnitude >= 0x7c00u ? (vf)((magnitude << 13) | 0x7f800000u) : x;
  x = magnitude > 0x7c00u ? quiet(x) : x;
  return (vf)((vu)x | ((bits & 0x8000u) << 16));
}

// Nearest even is rounding mode 0 of the instructions, 4 is "the current mode, no exceptions".
#if defined(TEGULA_CPU_AVX512)
TEGULA_CPU_INLINE vector_u16 narrow_f16(vf x) {
  typedef short v16hi __attribute__((vector_size(32)));
  return (vector_u16)__builtin_ia32_vcvtps2ph512_mask(x, 0, (v16hi){}, (unsigned short)-1);
}
TEGULA_CPU_INLINE vf widen_f16(vector_u16 bits) {
  typedef short v16hi __attribute__((vector_size(32)));
  return __builtin_ia32_vcvtph2ps512_mask((v16hi)bits, vf{}, (unsigned short)-1, 4);
}
#elif defined(TEGULA_CPU_AVX2) && !defined(__clang__)
TEGULA_CPU_INLINE vector_u16 narrow_f16(vf x) { return (vector_u16)__builtin_ia32_vcvtps2ph256(x, 0); }
TEGULA_CPU_INLINE vf widen_f16(vector_u16 bits) {
  typedef short v8hi __attribute__((vector_size(16)));
  return __builtin_ia32_vcvtph2ps256((v8hi)bits);
}
#elif defined(TEGULA_CPU_AVX2)
TEGULA_CPU_INLINE vector_u16 narrow_f16(vf x) { return (vector_u16)__builtin_ia32_vcvtps2ph256(x, 0); }
TEGULA_CPU_INLINE vf widen_f16(vector_u16 bits) {
  typedef __fp16 halves __attribute__((vector_size(16)));
  return __builtin_convertvector((halves)bits, vf);
}
#else
TEGULA_CPU_INLINE vector_u16 narrow_f16(vf x) {
  return __builtin_convertvector(bits_f16_generic(x), vector_u16);
}
TEGULA_CPU_INLINE vf widen_f16(vector_u16 bits) {
  return from_f16_generic(__builtin_convertvector(bits, vu));
}
#endif

// ---- between 32-bit types --------------------------------------------------------------------------------

TEGULA_CPU_INLINE vf to_f32(vf x) { return x; }
TEGULA_CPU_INLINE vf to_f32(vi x) { return __builtin_convertvector(x, vf); }
TEGULA_CPU_INLINE vf to_f32(vu x) { return __builtin_convertvector(x, vf); }
TEGULA_CPU_INLINE float to_f32(float x) { return x; }
TEGULA_CPU_INLINE float to_f32(int32_t x) { return float(x); }
TEGULA_CPU_INLINE float to_f32(uint32_t x) { return float(x); }
TEGULA_CPU_INLINE float to_f32(int64_t x) { return float(x); }
TEGULA_CPU_INLINE float to_f32(double x) { return float(x); }

TEGULA_CPU_INLINE vi to_i32(vf x) {
  const vf inside = abs(x) < 0x1p31f ? x : vf{};
  vi r = __builtin_convertvector(inside, vi);
  r = x >= 0x1p31f ? splat(int32_t(0x7fffffff)) : r;
  return x <= -0x1p31f ? splat(int32_t(-0x7fffffff - 1)) : r;
}
TEGULA_CPU_INLINE vi to_i32(vi x) { return x; }
TEGULA_CPU_INLINE vi to_i32(vu x) { return (vi)x; }
TEGULA_CPU_INLINE vu to_u32(vf x) {
  const vm high = x >= 0x1p31f;
  const vu r = (vu)to_i32(high ? x - 0x1p31f : x) + (high ? splat(0x80000000u) : vu{});
  return x >= 0x1p32f ? splat(0xffffffffu) : x > 0.0f ? r : vu{};
}
TEGULA_CPU_INLINE vu to_u32(vi x) { return (vu)x; }
TEGULA_CPU_INLINE vu to_u32(vu x) { return x; }
TEGULA_CPU_INLINE int32_t to_i32(int32_t x) { return x; }
TEGULA_CPU_INLINE int32_t to_i32(uint32_t x) { return int32_t(x); }
TEGULA_CPU_INLINE int32_t to_i32(int64_t x) { return int32_t(x); }
TEGULA_CPU_INLINE int32_t to_i32(bool x) { return x; }
TEGULA_CPU_INLINE uint32_t to_u32(int32_t x) { return uint32_t(x); }
TEGULA_CPU_INLINE uint32_t to_u32(uint32_t x) { return x; }
TEGULA_CPU_INLINE uint32_t to_u32(int64_t x) { return uint32_t(x); }
TEGULA_CPU_INLINE uint32_t to_u32(bool x) { return x; }
TEGULA_CPU_ONE_LANE(int32_t, to_i32, float)
TEGULA_CPU_ONE_LANE(uint32_t, to_u32, float)

// A boolean as a number, and a number as a boolean.
TEGULA_CPU_INLINE float to_f32(bool x) { return x; }
TEGULA_CPU_INLINE vf mask_to_f32(vm m) { return m ? splat(1.0f) : vf{}; }
TEGULA_CPU_INLINE vi mask_to_i32(vm m) { return m & 1; }
TEGULA_CPU_INLINE vu mask_to_u32(vm m) { return (vu)m & 1u; }
TEGULA_CPU_INLINE vm to_mask(vf x) { return x != 0.0f; }
TEGULA_CPU_INLINE vm to_mask(vi x) { return x != 0; }
TEGULA_CPU_INLINE vm to_mask(vu x) { return x != 0u; }

// Integers of fewer bits, kept in 32: from integers they wrap, from floats they saturate.
TEGULA_CPU_INLINE vi wrap_i8(vi x) { return (x << 24) >> 24; }
TEGULA_CPU_INLINE vi wrap_i16(vi x) { return (x << 16) >> 16; }
TEGULA_CPU_INLINE vi wrap_u8(vi x) { return x & 255; }
TEGULA_CPU_INLINE vi to_i8(vf x) { return max(min(to_i32(x), splat(int32_t(127))), splat(int32_t(-128))); }
TEGULA_CPU_INLINE vi to_i16(vf x) {
  return max(min(to_i32(x), splat(int32_t(32767))), splat(int32_t(-32768)));
}
TEGULA_CPU_INLINE vi to_u8(vf x) { return max(min(to_i32(x), splat(int32_t(255))), vi{}); }

TEGULA_CPU_ONE_LANE(float, round_bf16, float)
TEGULA_CPU_ONE_LANE(float, round_f16, float)
TEGULA_CPU_ONE_LANE(float, round_e4m3, float)
TEGULA_CPU_ONE_LANE(float, round_e5m2, float)
TEGULA_CPU_ONE_LANE(int32_t, wrap_i8, int32_t)
TEGULA_CPU_ONE_LANE(int32_t, wrap_i16, int32_t)
TEGULA_CPU_ONE_LANE(int32_t, wrap_u8, int32_t)
TEGULA_CPU_ONE_LANE(int32_t, to_i8, float)
TEGULA_CPU_ONE_LANE(int32_t, to_i16, float)
TEGULA_CPU_ONE_LANE(int32_t, to_u8, float)

// ---- 64-bit types ----------------------------------------------------------------------------------------

TEGULA_CPU_INLINE int64_t to_i64(int32_t x) { return x; }
TEGULA_CPU_INLINE int64_t to_i64(uint32_t x) { return x; }
TEGULA_CPU_INLINE int64_t to_i64(int64_t x) { return x; }
TEGULA_CPU_INLINE int64_t to_i64(bool x) { return x; }
// NaN and numbers below one are apart: without traps GCC 12 takes f64(i32(x)) for trunc(x), which is -0 above
// -1.
TEGULA_CPU_INLINE int64_t to_i64(double x) {
  return !(x >= 1 || x <= -1) ? 0 : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : int64_t(x);
}
TEGULA_CPU_INLINE int64_t to_i64(float x) { return to_i64(double(x)); }
TEGULA_CPU_INLINE int32_t to_i32(double x) {
  return !(x >= 1 || x <= -1) ? 0 : x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : int32_t(x);
}
TEGULA_CPU_INLINE uint32_t to_u32(double x) { return !(x > 0) ? 0 : x >= 0x1p32 ? UINT32_MAX : uint32_t(x); }
TEGULA_CPU_INLINE double to_f64(double x) { return x; }
TEGULA_CPU_INLINE double to_f64(float x) { return x; }
TEGULA_CPU_INLINE double to_f64(int32_t x) { return x; }
TEGULA_CPU_INLINE double to_f64(uint32_t x) { return x; }
TEGULA_CPU_INLINE double to_f64(int64_t x) { return double(x); }
TEGULA_CPU_INLINE double to_f64(bool x) { return x; }

#define TEGULA_CPU_CONVERT_LANES(To, name, From)                  \
  TEGULA_CPU_INLINE To name(From x) {                             \
    To r{};                                                       \
    for (int i = 0; i < W; ++i) set_lane(r, i, name(lane(x, i))); \
    return r;                                                     \
  }
TEGULA_CPU_CONVERT_LANES(vf, to_f32, vd)
TEGULA_CPU_CONVERT_LANES(vf, to_f32, vl)
TEGULA_CPU_CONVERT_LANES(vi, to_i32, vd)
TEGULA_CPU_CONVERT_LANES(vi, to_i32, vl)
TEGULA_CPU_CONVERT_LANES(vu, to_u32, vd)
TEGULA_CPU_CONVERT_LANES(vu, to_u32, vl)
TEGULA_CPU_CONVERT_LANES(vd, to_f64, vf)
TEGULA_CPU_CONVERT_LANES(vd, to_f64, vi)
TEGULA_CPU_CONVERT_LANES(vd, to_f64, vu)
TEGULA_CPU_CONVERT_LANES(vd, to_f64, vl)
TEGULA_CPU_CONVERT_LANES(vl, to_i64, vf)
TEGULA_CPU_CONVERT_LANES(vl, to_i64, vi)
TEGULA_CPU_CONVERT_LANES(vl, to_i64, vu)
TEGULA_CPU_CONVERT_LANES(vl, to_i64, vd)
#undef TEGULA_CPU_CONVERT_LANES
TEGULA_CPU_INLINE vd to_f64(vd x) { return x; }
TEGULA_CPU_INLINE vl to_i64(vl x) { return x; }
TEGULA_CPU_INLINE vm to_mask(vd x) { return x != splat(0.0); }
TEGULA_CPU_INLINE vm to_mask(vl x) { return x != splat(int64_t(0)); }

TEGULA_CPU_END
