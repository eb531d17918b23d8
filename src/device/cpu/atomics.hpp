// Values and tiles that several blocks combine with memory: as one step among all threads, or later, in an
// order.
#pragma once
#include "tile.hpp"

TEGULA_CPU_BEGIN

struct AtomicAdd {
  static TEGULA_CPU_MEMBER float of(float a, float b) { return a + b; }
  static TEGULA_CPU_MEMBER double of(double a, double b) { return a + b; }
  static TEGULA_CPU_MEMBER uint32_t of(uint32_t a, uint32_t b) { return a + b; }
  static TEGULA_CPU_MEMBER int32_t of(int32_t a, int32_t b) { return add(a, b); }
  static TEGULA_CPU_MEMBER int64_t of(int64_t a, int64_t b) { return add(a, b); }
};
struct AtomicOverwrite {
  template <class T>
  static TEGULA_CPU_MEMBER T of(T, T b) {
    return b;
  }
};
struct AtomicMin {
  template <class T>
  static TEGULA_CPU_MEMBER T of(T a, T b) {
    return min(a, b);
  }
};
struct AtomicMax {
  template <class T>
  static TEGULA_CPU_MEMBER T of(T a, T b) {
    return max(a, b);
  }
};
struct AtomicOr {
  template <class T>
  static TEGULA_CPU_MEMBER T of(T a, T b) {
    return a | b;
  }
};
struct AtomicAnd {
  template <class T>
  static TEGULA_CPU_MEMBER T of(T a, T b) {
    return a & b;
  }
};

template <int Bytes>
struct BitsOf;
template <>
struct BitsOf<2> {
  typedef uint16_t type;
};
template <>
struct BitsOf<4> {
  typedef uint32_t type;
};
template <>
struct BitsOf<8> {
  typedef uint64_t type;
};

// *p = op(*p, x), as one step among all threads.
template <class Combine, class S, class T>
TEGULA_CPU_TEMPLATE void atomic_update(S* p, T x) {
  typedef typename BitsOf<sizeof(S)>::type Bits;
  Bits old = __atomic_load_n((Bits*)p, __ATOMIC_RELAXED), next;
  do {
    S element = bits_as<S>(old);
    store1(&element, Combine::of(load1(&element), x));
    next = bits_as<Bits>(element);
  } while (next != old &&
           !__atomic_compare_exchange_n((Bits*)p, &old, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

template <class Combine, class S, class T>
TEGULA_CPU_SHARED void accumulate_tile(S* to, long to_row, long to_col, const T* from, long from_row,
                                       long from_col, Inside inside) {
  for (long r = inside.k_begin; r < inside.k_end; ++r) {
    for (long c = inside.n_begin; c < inside.n_end; ++c) {
      S* const element = to + r * to_row + c * to_col;
      const auto value = Held<decltype(load1(element))>::of(from[r * from_row + c * from_col]);
      atomic_update<Combine>(element, value);
    }
  }
}

// A contribution that waits for its turn: what is added, and where.
template <class S, class T>
struct Contribution {
  S* element;
  T value;
};
template <class S, class T>
TEGULA_CPU_SHARED void record_tile(void* memory, S* to, long to_row, long to_col, const T* from,
                                   long from_row, long from_col, Inside inside) {
  Contribution<S, T>* next = (Contribution<S, T>*)memory;
  for (long r = inside.k_begin; r < inside.k_end; ++r) {
    for (long c = inside.n_begin; c < inside.n_end; ++c) {
      *next++ = {to + r * to_row + c * to_col, from[r * from_row + c * from_col]};
    }
  }
}
template <class Combine, class S, class T>
static void apply_contribution(const void* memory, int64_t bytes) {
  const Contribution<S, T>* items = (const Contribution<S, T>*)memory;
  const long n = bytes / long(sizeof(Contribution<S, T>));
  for (long i = 0; i < n; ++i) {
    S* const element = items[i].element;
    store1(element, Combine::of(load1(element), Held<decltype(load1(element))>::of(items[i].value)));
  }
}
TEGULA_CPU_INLINE long size_of(Inside inside) {
  const long rows = inside.k_end - inside.k_begin, cols = inside.n_end - inside.n_begin;
  return rows > 0 && cols > 0 ? rows * cols : 0;
}

TEGULA_CPU_END
