// Operations on values, as the language defines them.
#pragma once
#include "types.cuh"

namespace tg {

// ---- integers
TG_DEVICE bool is_minus_one(int32_t x) { return x == -1; }
TG_DEVICE bool is_minus_one(int64_t x) { return x == -1; }
TG_DEVICE bool is_minus_one(uint32_t) { return false; }
template <class T>
TG_DEVICE T div(T a, T b) {
  if (b == 0) return 0;
  return is_minus_one(b) ? T(0) - a : a / b;
}
template <class T>
TG_DEVICE T mod(T a, T b) {
  if (b == 0 || is_minus_one(b)) return 0;
  return a % b;
}
TG_DEVICE bool signs_differ(int32_t a, int32_t b) { return (a ^ b) < 0; }
TG_DEVICE bool signs_differ(int64_t a, int64_t b) { return (a ^ b) < 0; }
TG_DEVICE bool signs_differ(uint32_t, uint32_t) { return false; }
template <class T>
TG_DEVICE T floordiv(T a, T b) {
  const T q = div(a, b), r = mod(a, b);
  return r != 0 && signs_differ(r, b) ? q - 1 : q;
}
template <class T>
TG_DEVICE T floormod(T a, T b) {
  const T r = mod(a, b);
  return r != 0 && signs_differ(r, b) ? r + b : r;
}
template <class T>
TG_DEVICE T ceildiv(T a, T b) {
  const T q = div(a, b), r = mod(a, b);
  return r != 0 && !signs_differ(r, b) ? q + 1 : q;
}
// Division of numbers that are not negative. By zero the result is any number.
TG_DEVICE uint32_t divisor(int32_t b) { return b > 1 ? uint32_t(b) : 1u; }
TG_DEVICE int32_t natural_div(int32_t a, int32_t b) { return int32_t(uint32_t(a) / divisor(b)); }
TG_DEVICE int32_t natural_mod(int32_t a, int32_t b) { return int32_t(uint32_t(a) % divisor(b)); }
TG_DEVICE int32_t natural_ceildiv(int32_t a, int32_t b) {
  return int32_t((uint32_t(a) + (divisor(b) - 1)) / divisor(b));
}
TG_DEVICE int32_t shl(int32_t a, int32_t n) { return n < 0 || n > 31 ? 0 : int32_t(uint32_t(a) << n); }
TG_DEVICE uint32_t shl(uint32_t a, uint32_t n) { return n > 31 ? 0 : a << n; }
TG_DEVICE int64_t shl(int64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : int64_t(uint64_t(a) << n); }
TG_DEVICE int32_t shr(int32_t a, int32_t n) { return a >> (n < 0 || n > 31 ? 31 : n); }
TG_DEVICE uint32_t shr(uint32_t a, uint32_t n) { return n > 31 ? 0 : a >> n; }
TG_DEVICE int64_t shr(int64_t a, int64_t n) { return a >> (n < 0 || n > 63 ? 63 : n); }

template <class T>
TG_DEVICE T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
TG_DEVICE T max(T a, T b) {
  return a < b ? b : a;
}
TG_DEVICE float min(float a, float b) { return fminf(a, b); }
TG_DEVICE float max(float a, float b) { return fmaxf(a, b); }
TG_DEVICE double min(double a, double b) { return fmin(a, b); }
TG_DEVICE double max(double a, double b) { return fmax(a, b); }
TG_DEVICE int32_t abs(int32_t a) { return a < 0 ? int32_t(0u - uint32_t(a)) : a; }
TG_DEVICE int64_t abs(int64_t a) { return a < 0 ? int64_t(0ul - uint64_t(a)) : a; }
TG_DEVICE uint32_t abs(uint32_t a) { return a; }
TG_DEVICE float abs(float a) { return fabsf(a); }
TG_DEVICE double abs(double a) { return fabs(a); }

TG_DEVICE int32_t popcount(int32_t a) { return __popc(uint32_t(a)); }
TG_DEVICE uint32_t popcount(uint32_t a) { return uint32_t(__popc(a)); }
TG_DEVICE int64_t popcount(int64_t a) { return __popcll(uint64_t(a)); }

TG_DEVICE uint32_t mul_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }

// ---- floats
TG_DEVICE bool isnan(float x) { return x != x; }
TG_DEVICE float exp(float x) { return expf(x); }
TG_DEVICE float exp2(float x) { return exp2_approximate(x); }
TG_DEVICE float log(float x) { return logf(x); }
TG_DEVICE float log2(float x) { return log2f(x); }
TG_DEVICE float sqrt(float x) { return sqrtf(x); }
TG_DEVICE float rsqrt(float x) { return rsqrtf(x); }
TG_DEVICE float rcp(float x) { return reciprocal_approximate(x); }
TG_DEVICE float tanh(float x) { return tanhf(x); }
TG_DEVICE float sin(float x) { return sinf(x); }
TG_DEVICE float cos(float x) { return cosf(x); }
TG_DEVICE float erf(float x) { return erff(x); }
TG_DEVICE float pow(float x, float y) { return powf(x, y); }
TG_DEVICE float round(float x) { return rintf(x); }
TG_DEVICE float floor(float x) { return floorf(x); }
TG_DEVICE float ceil(float x) { return ceilf(x); }
TG_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }

TG_DEVICE bool isnan(double x) { return x != x; }
TG_DEVICE double exp(double x) { return ::exp(x); }
TG_DEVICE double exp2(double x) { return ::exp2(x); }
TG_DEVICE double log(double x) { return ::log(x); }
TG_DEVICE double log2(double x) { return ::log2(x); }
TG_DEVICE double sqrt(double x) { return ::sqrt(x); }
TG_DEVICE double rsqrt(double x) { return ::rsqrt(x); }
TG_DEVICE double rcp(double x) { return 1.0 / x; }
TG_DEVICE double tanh(double x) { return ::tanh(x); }
TG_DEVICE double sin(double x) { return ::sin(x); }
TG_DEVICE double cos(double x) { return ::cos(x); }
TG_DEVICE double erf(double x) { return ::erf(x); }
TG_DEVICE double pow(double x, double y) { return ::pow(x, y); }
TG_DEVICE double round(double x) { return ::rint(x); }
TG_DEVICE double floor(double x) { return ::floor(x); }
TG_DEVICE double ceil(double x) { return ::ceil(x); }
TG_DEVICE double fma(double a, double b, double c) { return ::fma(a, b, c); }

// ---- conversions
TG_DEVICE int32_t to_i32(float x) { return __float2int_rz(x); }  // saturates; NaN gives 0
TG_DEVICE uint32_t to_u32(float x) { return __float2uint_rz(x); }
TG_DEVICE int64_t to_i64(float x) { return isnan(x) ? 0 : __float2ll_rz(x); }
TG_DEVICE int32_t to_i32(double x) { return isnan(x) ? 0 : __double2int_rz(x); }
TG_DEVICE uint32_t to_u32(double x) { return isnan(x) ? 0 : __double2uint_rz(x); }
TG_DEVICE int64_t to_i64(double x) { return isnan(x) ? 0 : __double2ll_rz(x); }
template <class T>
TG_DEVICE int32_t to_i32(T x) {
  return int32_t(x);
}
template <class T>
TG_DEVICE uint32_t to_u32(T x) {
  return uint32_t(x);
}
template <class T>
TG_DEVICE int64_t to_i64(T x) {
  return int64_t(x);
}
template <class T>
TG_DEVICE float to_f32(T x) {
  return float(x);
}
template <class T>
TG_DEVICE double to_f64(T x) {
  return double(x);
}
TG_DEVICE double as_f64(int64_t x) { return __longlong_as_double(x); }
TG_DEVICE double as_f64(double x) { return x; }
TG_DEVICE int64_t as_i64(double x) { return __double_as_longlong(x); }
TG_DEVICE int64_t as_i64(int64_t x) { return x; }
TG_DEVICE float as_f32(uint32_t x) { return __uint_as_float(x); }
TG_DEVICE float as_f32(int32_t x) { return __int_as_float(x); }
TG_DEVICE float as_f32(float x) { return x; }
TG_DEVICE int32_t as_i32(float x) { return __float_as_int(x); }
TG_DEVICE int32_t as_i32(uint32_t x) { return int32_t(x); }
TG_DEVICE int32_t as_i32(int32_t x) { return x; }
TG_DEVICE uint32_t as_u32(float x) { return __float_as_uint(x); }
TG_DEVICE uint32_t as_u32(int32_t x) { return uint32_t(x); }
TG_DEVICE uint32_t as_u32(uint32_t x) { return x; }

// ---- what reductions and atomics combine by
struct Add {
  template <class T>
  TG_DEVICE T of(T a, T b) {
    return a + b;
  }
};
struct Min {
  template <class T>
  TG_DEVICE T of(T a, T b) {
    return min(a, b);
  }
};
struct Max {
  template <class T>
  TG_DEVICE T of(T a, T b) {
    return max(a, b);
  }
};
struct Or {
  template <class T>
  TG_DEVICE T of(T a, T b) {
    return a | b;
  }
};
struct And {
  template <class T>
  TG_DEVICE T of(T a, T b) {
    return a & b;
  }
};

// Over the lanes whose numbers differ in the bits of `step`, … `step` · `extent` / 2.
TG_DEVICE float shuffled(float x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
TG_DEVICE double shuffled(double x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
TG_DEVICE int32_t shuffled(int32_t x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
TG_DEVICE uint32_t shuffled(uint32_t x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
TG_DEVICE int64_t shuffled(int64_t x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); }
TG_DEVICE bool shuffled(bool x, int step) { return __shfl_xor_sync(0xffffffffu, int(x), step) != 0; }
// Integers of a whole warp are reduced by one instruction.
TG_DEVICE int32_t of_warp(Add, int32_t x) { return __reduce_add_sync(0xffffffffu, x); }
TG_DEVICE int32_t of_warp(Max, int32_t x) { return __reduce_max_sync(0xffffffffu, x); }
TG_DEVICE int32_t of_warp(Min, int32_t x) { return __reduce_min_sync(0xffffffffu, x); }
TG_DEVICE uint32_t of_warp(Add, uint32_t x) { return __reduce_add_sync(0xffffffffu, x); }
TG_DEVICE uint32_t of_warp(Max, uint32_t x) { return __reduce_max_sync(0xffffffffu, x); }
TG_DEVICE uint32_t of_warp(Min, uint32_t x) { return __reduce_min_sync(0xffffffffu, x); }
template <class Op, int step, int extent, class T>
TG_DEVICE T across_lanes(T x) {
  constexpr bool is_integer = is_same<T, int32_t> || is_same<T, uint32_t>;
  constexpr bool is_known = is_same<Op, Add> || is_same<Op, Max> || is_same<Op, Min>;
  if constexpr (is_integer && is_known && step == 1 && extent == 32) {
    return of_warp(Op{}, x);
  } else {
#pragma unroll
    for (int s = step; s < step * extent; s *= 2) x = Op::of(x, shuffled(x, s));
    return x;
  }
}

// Of 9 to 31 parts in shared memory, `stride` elements apart: as many lanes as are a power of two have one
// or two each.
template <class Op, int parts, int stride, class T>
TG_DEVICE T across_some_parts(const T* p) {
  constexpr int lanes = parts > 16 ? 16 : 8;
  const int lane = threadIdx.x % lanes;
  T all = p[lane * stride];
  if (lane + lanes < parts) all = Op::of(all, p[(lane + lanes) * stride]);
  return across_lanes<Op, 1, lanes>(all);
}

// Of two registers that are `registers` apart a lane keeps the first, and the one that is `lanes` behind it
// the second, each combined with that of the other lane.
template <class Op, int lanes, int registers, class T, int n>
TG_DEVICE void halve_among_lanes(const T (&all)[n], T (&own)[n / 2]) {
  const bool second = threadIdx.x & lanes;
#pragma unroll
  for (int r = 0; r < n / 2; ++r) {
    const T a = all[r / registers * 2 * registers + r % registers],
            b = all[r / registers * 2 * registers + r % registers + registers];
    own[r] = Op::of(second ? b : a, shuffled(second ? a : b, lanes));
  }
}

TG_DEVICE bool any_lane(bool x) { return __any_sync(0xffffffffu, x) != 0; }

}  // namespace tg
