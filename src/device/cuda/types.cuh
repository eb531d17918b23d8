// Element types as they are in memory, and the values in which they are computed. No includes: NVRTC and nvcc
// take this text alike.
#pragma once
#include "instructions.cuh"

namespace tg {

struct boolean {
  uint8_t bits;
};
struct e4m3 {
  uint8_t bits;
};
struct e5m2 {
  uint8_t bits;
};
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

TG_DEVICE float infinity() { return __int_as_float(0x7f800000); }
TG_DEVICE float not_a_number() { return __int_as_float(0x7fffffff); }

// 8-bit floats by integers: `mantissa` bits, exponent bias, greatest finite value; to nearest even,
// saturating.
template <int mantissa, int bias, uint32_t greatest>
TG_DEVICE uint8_t bits_f8(float x) {
  const uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
  if (a > 0x7f800000) return sign | 0x7f;
  const int exponent = int(a >> 23) - 127 + bias;
  uint32_t r;
  if (exponent <= 0) {
    // Below the smallest normal number: a multiple of 2^(1 - bias - mantissa).
    const float scaled = __uint_as_float(a) * __uint_as_float(uint32_t(127 + bias - 1 + mantissa) << 23);
    r = uint32_t(__float2int_rn(scaled));
  } else {
    const uint32_t dropped = 23 - mantissa;
    const uint32_t even = a >> dropped & 1;
    const uint32_t rounded = a + (1u << (dropped - 1)) - 1 + even;
    r = (rounded >> dropped) - (uint32_t(127 - bias) << mantissa);
  }
  return sign | (r < greatest ? r : greatest);
}
template <int mantissa, int bias>
TG_DEVICE float from_f8(uint8_t x) {
  const uint32_t a = x & 0x7f, sign = uint32_t(x & 0x80) << 24;
  // The bits as a tiny float, scaled up exactly.
  const float scale = __uint_as_float(uint32_t(254 - bias) << 23);
  return __uint_as_float(__float_as_uint(__uint_as_float(a << (23 - mantissa)) * scale) | sign);
}

TG_DEVICE uint8_t bits_e4m3(float x) {
#if __CUDA_ARCH__ >= 900
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return uint8_t(r);
#else
  return bits_f8<3, 7, 0x7e>(x);
#endif
}
TG_DEVICE uint8_t bits_e5m2(float x) {
#if __CUDA_ARCH__ >= 900
  uint16_t r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return uint8_t(r);
#else
  return bits_f8<2, 15, 0x7b>(x);
#endif
}

// ---- element -> value
TG_DEVICE float value(float x) { return x; }
TG_DEVICE double value(double x) { return x; }
TG_DEVICE int32_t value(int32_t x) { return x; }
TG_DEVICE int64_t value(int64_t x) { return x; }
TG_DEVICE uint32_t value(uint32_t x) { return x; }
TG_DEVICE int32_t value(int8_t x) { return x; }
TG_DEVICE int32_t value(int16_t x) { return x; }
TG_DEVICE int32_t value(uint8_t x) { return x; }
TG_DEVICE bool value(boolean x) { return x.bits != 0; }
TG_DEVICE bool value(bool x) { return x; }
TG_DEVICE float value(f16 x) { return from_f16(x.bits); }
TG_DEVICE float value(bf16 x) { return from_bf16(x.bits); }
TG_DEVICE float value(e4m3 x) {
#if __CUDA_ARCH__ >= 900
  uint32_t both;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(uint16_t(x.bits)));
  return from_f16(uint16_t(both));
#else
  // 0x7f is the only NaN.
  return (x.bits & 0x7f) == 0x7f ? not_a_number() : from_f8<3, 7>(x.bits);
#endif
}
TG_DEVICE float value(e5m2 x) { return from_f16(uint16_t(x.bits << 8)); }

// ---- value -> element
template <class T>
struct Make {
  template <class V>
  TG_DEVICE T of(V x) {
    return T(x);
  }
};
template <>
struct Make<boolean> {
  TG_DEVICE boolean of(bool x) { return {uint8_t(x)}; }
};
template <>
struct Make<f16> {
  TG_DEVICE f16 of(float x) { return {bits_f16(x)}; }
};
template <>
struct Make<bf16> {
  TG_DEVICE bf16 of(float x) { return {bits_bf16(x)}; }
};
template <>
struct Make<e4m3> {
  TG_DEVICE e4m3 of(float x) { return {bits_e4m3(x)}; }
  TG_DEVICE e4m3 of(e4m3 x) { return x; }
};
template <>
struct Make<e5m2> {
  TG_DEVICE e5m2 of(float x) { return {bits_e5m2(x)}; }
  TG_DEVICE e5m2 of(e5m2 x) { return x; }
};

template <class T, class V>
TG_DEVICE T make(V x) {
  return Make<T>::of(x);
}
// The value as an element of T would hold it.
template <class T, class V>
TG_DEVICE auto rounded(V x) {
  return value(Make<T>::of(x));
}
template <class T, int count>
TG_DEVICE void round_registers(float (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) r[i] = rounded<T>(r[i]);
}

}  // namespace tg
