// What CUDA C++ has and C++ has not, for one thread of a block that runs alone until it waits.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "threads.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __shared__
#define __align__(n) __attribute__((aligned(n)))

static TegulaIndex threadIdx, blockIdx;
static unsigned tegula_number;                  // of the thread in its cluster
static constexpr TegulaIndex gridDim{1, 1, 1};  // of persistent kernels: one block runs all
static const TegulaThreads* tegula_threads;
static bool (*tegula_go_on)() = [] { return false; };
constexpr int tegula_shared_bytes = 227 * 1024, tegula_most_ctas = 8;
unsigned char shared_memory[tegula_most_ctas * tegula_shared_bytes] __align__(1024);

extern "C" TegulaPrinted tegula_bind(const TegulaThreads* threads) {
  tegula_threads = threads;
  return {&threadIdx, &blockIdx, &tegula_number, shared_memory, tegula_shared_bytes, tegula_go_on};
}

struct float2 {
  float x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) int4 {
  int x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

template <class To, class From>
static inline To tegula_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &x, sizeof(To));
  return to;
}
static inline float __int_as_float(int x) { return tegula_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return tegula_bits<float>(x); }
static inline int __float_as_int(float x) { return tegula_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return tegula_bits<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return tegula_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return tegula_bits<long long>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long x) { return __builtin_popcountl(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long)a * b >> 32); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }

// Towards zero, into the range of the type; NaN gives 0.
template <class T, class Float>
static inline T tegula_truncated(Float x, Float low, Float high, T least, T greatest) {
  if (x != x) return 0;
  return x < low ? least : x >= high ? greatest : T(x);
}
static inline int __float2int_rz(float x) {
  return tegula_truncated<int, float>(x, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX);
}
static inline unsigned __float2uint_rz(float x) {
  return tegula_truncated<unsigned, float>(x, 0, 0x1p32f, 0, UINT32_MAX);
}
static inline long long __float2ll_rz(float x) {
  return tegula_truncated<long long, float>(x, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX);
}
static inline int __double2int_rz(double x) {
  return tegula_truncated<int, double>(x, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX);
}
static inline unsigned __double2uint_rz(double x) {
  return tegula_truncated<unsigned, double>(x, 0, 0x1p32, 0, UINT32_MAX);
}
static inline long long __double2ll_rz(double x) {
  return tegula_truncated<long long, double>(x, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX);
}
static inline int __float2int_rn(float x) { return __float2int_rz(rintf(x)); }

// ---- atomics: nobody else runs
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <class T>
static inline T atomicAdd(T* p, T x) {
  const T old = *p;
  *p = T(old + x);
  return old;
}
template <class T>
static inline T atomicMin(T* p, T x) {
  const T old = *p;
  if (x < old) *p = x;
  return old;
}
template <class T>
static inline T atomicMax(T* p, T x) {
  const T old = *p;
  if (old < x) *p = x;
  return old;
}
template <class T>
static inline T atomicOr(T* p, T x) {
  const T old = *p;
  *p = T(old | x);
  return old;
}
template <class T>
static inline T atomicAnd(T* p, T x) {
  const T old = *p;
  *p = T(old & x);
  return old;
}
template <class T>
static inline T atomicCAS(T* p, T expected, T x) {
  const T old = *p;
  if (old == expected) *p = x;
  return old;
}
static inline int atomicCAS(int* p, int expected, unsigned long x) { return atomicCAS(p, expected, int(x)); }

// ---- lanes of a warp
template <class T>
struct TegulaExchange {
  T value, result;
  int from;
};
template <class T>
static inline T __shfl_sync(unsigned, T x, int lane) {
  TegulaExchange<T> own{x, x, lane};
  tegula_threads->together(
      [](void** lanes) {
        for (int i = 0; i < 32; ++i) {
          auto* to = static_cast<TegulaExchange<T>*>(lanes[i]);
          auto* from = to ? static_cast<TegulaExchange<T>*>(lanes[to->from]) : nullptr;
          if (from) to->result = from->value;
        }
      },
      &own);
  return own.result;
}
template <class T>
static inline T __shfl_xor_sync(unsigned all, T x, int step) {
  return __shfl_sync(all, x, int(threadIdx.x) % 32 ^ step);
}
static inline int __any_sync(unsigned all, int x) {
  for (int step = 1; step < 32; step *= 2) x |= __shfl_xor_sync(all, x, step);
  return x;
}
template <class T>
static inline T __reduce_add_sync(unsigned all, T x) {
  for (int step = 1; step < 32; step *= 2) x = T(unsigned(x) + unsigned(__shfl_xor_sync(all, x, step)));
  return x;
}
template <class T>
static inline T __reduce_max_sync(unsigned all, T x) {
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_xor_sync(all, x, step);
    x = other > x ? other : x;
  }
  return x;
}
template <class T>
static inline T __reduce_min_sync(unsigned all, T x) {
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_xor_sync(all, x, step);
    x = other < x ? other : x;
  }
  return x;
}
static inline void __syncthreads() { tegula_threads->wait(0, 0); }
