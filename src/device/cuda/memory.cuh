// Single elements of memory, and atomics.
#pragma once
#include "math.cuh"

namespace tg {

template <class T>
TG_DEVICE auto load(const T* p) {
  return value(*p);
}
template <class T, class V>
TG_DEVICE void store(T* p, V x) {
  *p = make<T>(x);
}

// Elements that fill 16 bytes, of which the first `count` are there; the others become zeros. `to` is
// aligned.
struct __align__(16) Vector {
  uint32_t words[4];
};
template <class T>
TG_DEVICE void copy_vector(T* to, const T* from, int64_t stride, int count) {
  constexpr int elements = 16 / sizeof(T);
  if (count == elements && stride == 1 && (uint64_t(from) & 15) == 0) {
    *(Vector*)to = *(const Vector*)from;
    return;
  }
#pragma unroll
  for (int i = 0; i < elements; ++i) to[i] = i < count ? from[i * stride] : T{};
}

// The place of an element in a swizzled matrix of 16-bit elements, see TileOrder.
template <int rows, int columns>
TG_DEVICE int swizzled(int row, int column) {
  const int exchange = row / (64 / columns) % (columns / 8);
  return (column / columns * rows + row) * columns + ((column % columns / 8) ^ exchange) * 8 + column % 8;
}

// ---- atomics: by the instruction where there is one, else by comparing and exchanging
template <class T>
struct Word {
  using U = unsigned int;
};
template <>
struct Word<int64_t> {
  using U = unsigned long long;
};
template <>
struct Word<double> {
  using U = unsigned long long;
};
template <>
struct Word<f16> {
  using U = unsigned short;
};
template <>
struct Word<bf16> {
  using U = unsigned short;
};
template <class To, class From>
TG_DEVICE To bits_as(From x) {
  To to;
  memcpy(&to, &x, sizeof(To));
  return to;
}
template <class Op, class T, class V>
TG_DEVICE void by_exchange(Op, T* p, V x) {
  using U = typename Word<T>::U;
  U* const word = (U*)p;
  U seen = *(volatile U*)word;
  for (;;) {
    const U before = seen;
    seen = atomicCAS(word, before, bits_as<U>(make<T>(Op::of(value(bits_as<T>(before)), x))));
    if (seen == before) return;
  }
}
template <class Op, class T, class V>
TG_DEVICE void combine(Op op, T* p, V x) {
  by_exchange(op, p, decltype(value(*p))(x));
}
#define TG_ATOMIC(Op, function)                                               \
  TG_DEVICE void combine(Op, int32_t* p, int32_t x) { function((int*)p, x); } \
  TG_DEVICE void combine(Op, uint32_t* p, uint32_t x) { function((unsigned int*)p, x); }
#define TG_ATOMIC_WIDE(Op, function, U) \
  TG_DEVICE void combine(Op, int64_t* p, int64_t x) { function((U*)p, (U)x); }
TG_ATOMIC(Add, atomicAdd)
TG_ATOMIC(Min, atomicMin)
TG_ATOMIC(Max, atomicMax)
TG_ATOMIC(Or, atomicOr)
TG_ATOMIC(And, atomicAnd)
TG_ATOMIC_WIDE(Add, atomicAdd, unsigned long long)
TG_ATOMIC_WIDE(Min, atomicMin, long long)
TG_ATOMIC_WIDE(Max, atomicMax, long long)
TG_ATOMIC_WIDE(Or, atomicOr, unsigned long long)
TG_ATOMIC_WIDE(And, atomicAnd, unsigned long long)
#undef TG_ATOMIC
#undef TG_ATOMIC_WIDE
TG_DEVICE void combine(Add, float* p, float x) { atomicAdd(p, x); }
TG_DEVICE void combine(Add, double* p, double x) { atomicAdd(p, x); }

template <class Op, class T, class V>
TG_DEVICE void atomic_update(T* p, V x) {
  combine(Op(), p, decltype(value(*p))(x));
}

// ---- what failed: the first assertion of a launch, and its block
TG_DEVICE void report(unsigned long long* status, unsigned int number) {
  atomicCAS(status, 0ull, (unsigned long long)(blockIdx.x) << 32 | number);
}

}  // namespace tg
