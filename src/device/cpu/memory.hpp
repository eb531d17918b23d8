// Loads and stores of W consecutive or strided elements of every storage type. The pointer's type picks the
// conversion: f32, bf16, f16, e4m3, e5m2 give vf; i32, i16, i8, u8 give vi; u32 gives vu; boolean gives vm;
// f64 and i64 give vd and vl. Stores of floats round as convert.hpp says, stores of integers wrap. The forms
// with a count touch no memory outside the first n elements; lanes beyond it read as zero.
#pragma once
#include "convert.hpp"
#include "tails.hpp"

TEGULA_CPU_BEGIN

template <class V, class T>
TEGULA_CPU_TEMPLATE V load_as(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}

// Bytes and halves of words as registers of words. g++ converts such vectors one element, or one half, at a
// time.
#if TEGULA_CPU_W > 4
#define TEGULA_CPU_WIDENED(V, narrow, instruction)       \
  TEGULA_CPU_INLINE V widened(narrow x) {                \
    V result;                                            \
    asm(instruction " %1, %0" : "=v"(result) : "vm"(x)); \
    return result;                                       \
  }
#else
#define TEGULA_CPU_WIDENED(V, narrow, instruction) \
  TEGULA_CPU_INLINE V widened(narrow x) { return __builtin_convertvector(x, V); }
#endif
TEGULA_CPU_WIDENED(vu, vector_u16, "vpmovzxwd")
TEGULA_CPU_WIDENED(vi, vector_i16, "vpmovsxwd")
TEGULA_CPU_WIDENED(vi, vector_u8, "vpmovzxbd")
TEGULA_CPU_WIDENED(vi, vector_i8, "vpmovsxbd")
#undef TEGULA_CPU_WIDENED
// The lowest byte of each word.
#if TEGULA_CPU_W == 16
TEGULA_CPU_INLINE vector_u8 bytes_of(vu x) {
  vector_u8 result;
  asm("vpmovdb %1, %0" : "=v"(result) : "v"(x));
  return result;
}
#elif TEGULA_CPU_W == 8
TEGULA_CPU_INLINE vector_u8 bytes_of(vu x) {
  typedef uint8_t bytes __attribute__((vector_size(4 * W)));
  return __builtin_shufflevector((bytes)x, (bytes)x, 0, 4, 8, 12, 16, 20, 24, 28);
}
#else
TEGULA_CPU_INLINE vector_u8 bytes_of(vu x) { return __builtin_convertvector(x, vector_u8); }
#endif

TEGULA_CPU_INLINE vf load(const float* p) { return load_as<vf>(p); }
TEGULA_CPU_INLINE vi load(const int32_t* p) { return load_as<vi>(p); }
TEGULA_CPU_INLINE vu load(const uint32_t* p) { return load_as<vu>(p); }
TEGULA_CPU_INLINE vi load(const int16_t* p) { return widened(load_as<vector_i16>(p)); }
TEGULA_CPU_INLINE vi load(const int8_t* p) { return widened(load_as<vector_i8>(p)); }
TEGULA_CPU_INLINE vi load(const uint8_t* p) { return widened(load_as<vector_u8>(p)); }
TEGULA_CPU_INLINE vm load(const boolean* p) { return widened(load_as<vector_u8>(p)) != 0; }
TEGULA_CPU_INLINE vf load(const bf16* p) { return from_bf16(widened(load_as<vector_u16>(p))); }
TEGULA_CPU_INLINE vf load(const f16* p) { return widen_f16(load_as<vector_u16>(p)); }
#if TEGULA_CPU_W == 16
// As from_e4m3: f16 has the same bits in other places, in units of 2^-8, and its small numbers alike.
TEGULA_CPU_INLINE vf load(const e4m3* p) {
  typedef int16_t words __attribute__((vector_size(2 * W)));
  words bits;
  asm("vpmovsxbw %1, %0" : "=v"(bits) : "m"(*(const vector_i8*)p));
  const vf x = widen_f16((vector_u16)((bits << 7) & (words{} + int16_t(0xbfff)))) * 256.0f;
  const vu nan = ((vu)x & 0x80000000u) | 0x7fc00000u;
  return abs(x) > 448.0f ? (vf)nan : x;
}
#else
TEGULA_CPU_INLINE vf load(const e4m3* p) { return from_e4m3((vu)widened(load_as<vector_u8>(p))); }
#endif
TEGULA_CPU_INLINE vf load(const e5m2* p) { return from_e5m2((vu)widened(load_as<vector_u8>(p))); }
TEGULA_CPU_INLINE vd load(const double* p) { return load_as<vd>(p); }
TEGULA_CPU_INLINE vl load(const int64_t* p) { return load_as<vl>(p); }

template <class T, class V>
TEGULA_CPU_TEMPLATE void store_as(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

TEGULA_CPU_INLINE void store(float* p, vf x) { store_as(p, x); }
TEGULA_CPU_INLINE void store(int32_t* p, vi x) { store_as(p, x); }
TEGULA_CPU_INLINE void store(uint32_t* p, vu x) { store_as(p, x); }
TEGULA_CPU_INLINE void store(int16_t* p, vi x) { store_as(p, __builtin_convertvector(x, vector_i16)); }
TEGULA_CPU_INLINE void store(int8_t* p, vi x) { store_as(p, bytes_of((vu)x)); }
TEGULA_CPU_INLINE void store(uint8_t* p, vi x) { store_as(p, bytes_of((vu)x)); }
TEGULA_CPU_INLINE void store(boolean* p, vm x) { store_as(p, bytes_of(mask_to_u32(x))); }
TEGULA_CPU_INLINE void store(bf16* p, vf x) {
  store_as(p, __builtin_convertvector(bits_bf16(x), vector_u16));
}
TEGULA_CPU_INLINE void store(f16* p, vf x) { store_as(p, narrow_f16(x)); }
TEGULA_CPU_INLINE void store(e4m3* p, vf x) { store_as(p, bytes_of(bits_e4m3(x))); }
TEGULA_CPU_INLINE void store(e5m2* p, vf x) { store_as(p, bytes_of(bits_e5m2(x))); }
TEGULA_CPU_INLINE void store(double* p, vd x) { store_as(p, x); }
TEGULA_CPU_INLINE void store(int64_t* p, vl x) { store_as(p, x); }

// With `pairs`, the processor has the instruction for what a store of bf16 does. It takes subnormal numbers
// for zeros, so that vectors with one of them go the other way.
template <class T, class V>
TEGULA_CPU_TEMPLATE void store(T* p, V x, bool) {
  store(p, x);
}
#if defined(TEGULA_CPU_AVX512)
TEGULA_CPU_INLINE void store(bf16* p, vf x, bool pairs) {
  unsigned short subnormal;
  asm("vfpclassps $0x20, %1, %0" : "=Yk"(subnormal) : "v"(x));
  if (!pairs || subnormal) return store(p, x);
  vector_u16 bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x));
  store_as(p, bits);
}
#endif

// ---- one element ------------------------------------------------------------------------------------------

TEGULA_CPU_INLINE float load1(const float* p) { return *p; }
TEGULA_CPU_INLINE int32_t load1(const int32_t* p) { return *p; }
TEGULA_CPU_INLINE uint32_t load1(const uint32_t* p) { return *p; }
TEGULA_CPU_INLINE int32_t load1(const int16_t* p) { return *p; }
TEGULA_CPU_INLINE int32_t load1(const int8_t* p) { return *p; }
TEGULA_CPU_INLINE int32_t load1(const uint8_t* p) { return *p; }
TEGULA_CPU_INLINE bool load1(const boolean* p) { return p->bits != 0; }
TEGULA_CPU_INLINE float load1(const bf16* p) { return as_f32(uint32_t(p->bits) << 16); }
TEGULA_CPU_INLINE float load1(const f16* p) { return widen_f16(vector_u16{p->bits})[0]; }
TEGULA_CPU_INLINE float load1(const e4m3* p) { return from_e4m3(splat(uint32_t(p->bits)))[0]; }
TEGULA_CPU_INLINE float load1(const e5m2* p) { return from_e5m2(splat(uint32_t(p->bits)))[0]; }
TEGULA_CPU_INLINE double load1(const double* p) { return *p; }
TEGULA_CPU_INLINE int64_t load1(const int64_t* p) { return *p; }

TEGULA_CPU_INLINE void store1(float* p, float x) { *p = x; }
TEGULA_CPU_INLINE void store1(int32_t* p, int32_t x) { *p = x; }
TEGULA_CPU_INLINE void store1(uint32_t* p, uint32_t x) { *p = x; }
TEGULA_CPU_INLINE void store1(int16_t* p, int32_t x) { *p = int16_t(x); }
TEGULA_CPU_INLINE void store1(int8_t* p, int32_t x) { *p = int8_t(x); }
TEGULA_CPU_INLINE void store1(uint8_t* p, int32_t x) { *p = uint8_t(x); }
TEGULA_CPU_INLINE void store1(boolean* p, bool x) { p->bits = x; }
TEGULA_CPU_INLINE void store1(bf16* p, float x) { p->bits = uint16_t(bits_bf16(splat(x))[0]); }
TEGULA_CPU_INLINE void store1(f16* p, float x) { p->bits = narrow_f16(splat(x))[0]; }
TEGULA_CPU_INLINE void store1(e4m3* p, float x) { p->bits = uint8_t(bits_e4m3(splat(x))[0]); }
TEGULA_CPU_INLINE void store1(e5m2* p, float x) { p->bits = uint8_t(bits_e5m2(splat(x))[0]); }
TEGULA_CPU_INLINE void store1(double* p, double x) { *p = x; }
TEGULA_CPU_INLINE void store1(int64_t* p, int64_t x) { *p = x; }

// ---- tails ------------------------------------------------------------------------------------------------

// W elements in the layout of T, where a tail is gathered before it is converted and after.
template <class T>
struct Staging {
  T element[W];
};

// Vectors of bytes and of halves of words on their way to and from a tail.
template <class T, int bytes = sizeof(T)>
struct TailVector {};
template <class T>
struct TailVector<T, 1> {
  typedef vector_u8 type;
};
template <class T>
struct TailVector<T, 2> {
  typedef vector_u16 type;
};

template <class T>
TEGULA_CPU_TEMPLATE auto load_n(const T* p, long n) {
  if (n >= W) return load(p);
  Staging<T> staging{};
  if constexpr (sizeof(T) <= 2) {
    typedef typename TailVector<T>::type V;
    store_as(&staging, load_bytes((const V*)p, n > 0 ? n * long(sizeof(T)) : 0));
  } else {
    for (long i = 0; i < n; ++i) staging.element[i] = p[i];
  }
  return load(staging.element);
}
template <class T, class V>
TEGULA_CPU_TEMPLATE void store_n(T* p, V x, long n) {
  if (n >= W) return store(p, x);
  Staging<T> staging;
  store(staging.element, x);
  if constexpr (sizeof(T) <= 2) {
    typedef typename TailVector<T>::type Narrow;
    store_bytes((Narrow*)p, load_as<Narrow>(&staging), n > 0 ? n * long(sizeof(T)) : 0);
  } else {
    for (long i = 0; i < n; ++i) p[i] = staging.element[i];
  }
}

#if defined(TEGULA_CPU_AVX512)
TEGULA_CPU_INLINE vf load_n(const float* p, long n) {
  return __builtin_ia32_loadups512_mask(p, vf{}, low_bits(n));
}
TEGULA_CPU_INLINE void store_n(float* p, vf x, long n) { __builtin_ia32_storeups512_mask(p, x, low_bits(n)); }
#elif defined(TEGULA_CPU_AVX2)
TEGULA_CPU_INLINE vf load_n(const float* p, long n) {
  return __builtin_ia32_maskloadps256((const vf*)p, lanes_below(n));
}
TEGULA_CPU_INLINE void store_n(float* p, vf x, long n) {
  __builtin_ia32_maskstoreps256((vf*)p, lanes_below(n), x);
}
#endif
#if defined(TEGULA_CPU_AVX512) || defined(TEGULA_CPU_AVX2)
TEGULA_CPU_INLINE vi load_n(const int32_t* p, long n) { return (vi)load_n((const float*)p, n); }
TEGULA_CPU_INLINE vu load_n(const uint32_t* p, long n) { return (vu)load_n((const float*)p, n); }
TEGULA_CPU_INLINE void store_n(int32_t* p, vi x, long n) { store_n((float*)p, (vf)x, n); }
TEGULA_CPU_INLINE void store_n(uint32_t* p, vu x, long n) { store_n((float*)p, (vf)x, n); }
#endif

// ---- strides ----------------------------------------------------------------------------------------------

template <class T>
TEGULA_CPU_TEMPLATE auto load_strided(const T* p, long stride, long n = W) {
  Staging<T> staging{};
  for (long i = 0; i < n && i < W; ++i) staging.element[i] = p[i * stride];
  return load(staging.element);
}
template <class T, class V>
TEGULA_CPU_TEMPLATE void store_strided(T* p, long stride, V x, long n = W) {
  Staging<T> staging;
  store(staging.element, x);
  for (long i = 0; i < n && i < W; ++i) p[i * stride] = staging.element[i];
}

TEGULA_CPU_END
