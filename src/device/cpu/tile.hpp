// Tiles against memory: clipped copies in both directions, and elements reached lane by lane.
//
// A tile keeps its elements in the type in which they are computed (see README.md), booleans as int32_t that
// is 0 or -1. W elements from any element of a tile on may be read: tiles have room after them.
#pragma once
#include "math.hpp"
#include "pack.hpp"

TEGULA_CPU_BEGIN

// ---- the value of an element in a tile of another type ----

template <class T>
struct Held;
#define TEGULA_CPU_HELD(T, name)            \
  template <>                               \
  struct Held<T> {                          \
    template <class V>                      \
    static TEGULA_CPU_MEMBER auto of(V x) { \
      return name(x);                       \
    }                                       \
  };
TEGULA_CPU_HELD(float, to_f32)
TEGULA_CPU_HELD(int32_t, to_i32)
TEGULA_CPU_HELD(uint32_t, to_u32)
TEGULA_CPU_HELD(double, to_f64)
TEGULA_CPU_HELD(int64_t, to_i64)
#undef TEGULA_CPU_HELD

struct WrapI8 {
  TEGULA_CPU_MEMBER vi operator()(vi x) const { return wrap_i8(x); }
};
struct WrapI16 {
  TEGULA_CPU_MEMBER vi operator()(vi x) const { return wrap_i16(x); }
};
struct WrapU8 {
  TEGULA_CPU_MEMBER vi operator()(vi x) const { return wrap_u8(x); }
};

// What a tile's vector becomes on its way to memory of type S.
TEGULA_CPU_INLINE vf for_memory(const float*, vf x) { return x; }
template <class S, class V>
TEGULA_CPU_TEMPLATE auto for_memory(const S*, V x) {
  return Held<S>::of(x);
}
#define TEGULA_CPU_FOR_MEMORY(S, name)                 \
  template <class V>                                   \
  TEGULA_CPU_TEMPLATE auto for_memory(const S*, V x) { \
    return name(x);                                    \
  }
TEGULA_CPU_FOR_MEMORY(bf16, to_f32)
TEGULA_CPU_FOR_MEMORY(f16, to_f32)
TEGULA_CPU_FOR_MEMORY(e4m3, to_f32)
TEGULA_CPU_FOR_MEMORY(e5m2, to_f32)
TEGULA_CPU_FOR_MEMORY(int8_t, to_i32)
TEGULA_CPU_FOR_MEMORY(int16_t, to_i32)
TEGULA_CPU_FOR_MEMORY(uint8_t, to_i32)
TEGULA_CPU_FOR_MEMORY(boolean, to_i32)
#undef TEGULA_CPU_FOR_MEMORY

// The numbers of all lanes as a type, for shuffles.
template <int... I>
struct Lanes {};
template <int N, int... I>
struct CountedLanes : CountedLanes<N - 1, N - 1, I...> {};
template <int... I>
struct CountedLanes<0, I...> {
  typedef Lanes<I...> type;
};

// ---- lanes, each with an address of its own ----

template <class T>
struct Plain {
  typedef T type;
};
template <class T>
struct Plain<const T> {
  typedef T type;
};

// address(lane) is asked for the lanes in `where`; the others read as zero.
template <class T, class Address>
TEGULA_CPU_TEMPLATE auto load_lanes(T*, vm where, Address address) {
  Staging<typename Plain<T>::type> staging{};
  for (int i = 0; i < W; ++i) {
    if (where[i]) staging.element[i] = *address(i);
  }
  return load(staging.element);
}
// Lane i has what lane i ^ C of the row has, where lanes count from `first` on.
template <int C, class V, int... I>
TEGULA_CPU_TEMPLATE V exchanged(V x, Lanes<I...>) {
  return __builtin_shufflevector(x, x, (I ^ C)...);
}
template <int C, class T>
TEGULA_CPU_TEMPLATE auto load_exchanged(const T* row, long first) {
  const auto x = load(row + (first ^ (C & ~(W - 1))));
  return exchanged<(C & (W - 1))>(x, typename CountedLanes<W>::type());
}
// Element i / Shared for lane i, of elements in registers of 32 bits a lane.
template <int Shared, class T>
TEGULA_CPU_TEMPLATE auto load_spread(const T* p) {
  typedef decltype(load(p)) V;
  if constexpr (Shared >= W) {
    return (V)splat(load1(p));
  } else if constexpr (sizeof(load1(p)) == 8) {
    return load_lanes(p, splat(true), [&](int i) { return p + i / Shared; });
  } else {
    const V x = load_n(p, W / Shared);
#if TEGULA_CPU_W == 16
    return __builtin_shufflevector(x, x, 0, 1 / Shared, 2 / Shared, 3 / Shared, 4 / Shared, 5 / Shared,
                                   6 / Shared, 7 / Shared, 8 / Shared, 9 / Shared, 10 / Shared, 11 / Shared,
                                   12 / Shared, 13 / Shared, 14 / Shared, 15 / Shared);
#elif TEGULA_CPU_W == 8
    return __builtin_shufflevector(x, x, 0, 1 / Shared, 2 / Shared, 3 / Shared, 4 / Shared, 5 / Shared,
                                   6 / Shared, 7 / Shared);
#else
    return __builtin_shufflevector(x, x, 0, 1 / Shared, 2 / Shared, 3 / Shared);
#endif
  }
}
template <class T, class V, class Address>
TEGULA_CPU_TEMPLATE void store_lanes(T*, V x, vm where, Address address) {
  Staging<T> staging;
  store(staging.element, x);
  for (int i = 0; i < W; ++i) {
    if (where[i]) *address(i) = staging.element[i];
  }
}
// Elements p[at] of 32 bits, by one instruction where there is one: kernels with many of these would take
// long to compile otherwise. Lanes outside of `where` read as zero.
#if defined(TEGULA_CPU_AVX512)
TEGULA_CPU_INLINE unsigned short bits_of(vm m) { return (unsigned short)__builtin_ia32_cvtd2mask512(m); }
TEGULA_CPU_INLINE vf gather_lanes(const float* p, vm where, vi at) {
  return __builtin_ia32_gathersiv16sf(vf{}, p, at, bits_of(where), 4);
}
TEGULA_CPU_INLINE vi gather_lanes(const int32_t* p, vm where, vi at) {
  return __builtin_ia32_gathersiv16si(vi{}, p, at, bits_of(where), 4);
}
TEGULA_CPU_INLINE void scatter_lanes(float* p, vf x, vm where, vi at) {
  __builtin_ia32_scattersiv16sf(p, bits_of(where), at, x, 4);
}
TEGULA_CPU_INLINE void scatter_lanes(int32_t* p, vi x, vm where, vi at) {
  __builtin_ia32_scattersiv16si(p, bits_of(where), at, x, 4);
}
#else
TEGULA_CPU_INLINE vf gather_lanes(const float* p, vm where, vi at) {
  return load_lanes(p, where, [&](int i) { return p + at[i]; });
}
TEGULA_CPU_INLINE vi gather_lanes(const int32_t* p, vm where, vi at) {
  return load_lanes(p, where, [&](int i) { return p + at[i]; });
}
TEGULA_CPU_INLINE void scatter_lanes(float* p, vf x, vm where, vi at) {
  store_lanes(p, x, where, [&](int i) { return p + at[i]; });
}
TEGULA_CPU_INLINE void scatter_lanes(int32_t* p, vi x, vm where, vi at) {
  store_lanes(p, x, where, [&](int i) { return p + at[i]; });
}
#endif
TEGULA_CPU_INLINE vu gather_lanes(const uint32_t* p, vm where, vi at) {
  return (vu)gather_lanes((const int32_t*)p, where, at);
}
TEGULA_CPU_INLINE void scatter_lanes(uint32_t* p, vu x, vm where, vi at) {
  scatter_lanes((int32_t*)p, (vi)x, where, at);
}
// The lanes [begin, end) of elements that are `step` apart.
template <class T>
TEGULA_CPU_TEMPLATE auto load_step(const T* p, long step, long begin, long end) {
  if (step == 1 && begin <= 0) return load_n(p, end < 0 ? 0 : end);
  return load_lanes(p, lanes_between(begin, end), [&](int i) { return p + i * step; });
}
// Those of 32 bits are gathered where the distances fit.
template <class T>
TEGULA_CPU_TEMPLATE auto gather_step(const T* p, long step, long begin, long end) {
  const vm where = lanes_between(begin, end);
  if (step == 1 && begin <= 0) return load_n(p, end < 0 ? 0 : end);
  if (int32_t(step * W) == step * W) return gather_lanes(p, where, iota() * int32_t(step));
  return load_lanes(p, where, [&](int i) { return p + i * step; });
}
// Every second element of 2 W - 1, and stores of as many that leave those between them.
template <int... I>
TEGULA_CPU_TEMPLATE vf every_second(vf low, vf high, Lanes<I...>) {
  return __builtin_shufflevector(low, high, (2 * I < W ? 2 * I : 2 * I + 1)...);
}
TEGULA_CPU_INLINE vf load_step(const float* p, long step, long begin, long end) {
  if (step == 2 && begin <= 0 && end >= W)
    return every_second(load(p), load(p + W - 1), typename CountedLanes<W>::type());
  return gather_step(p, step, begin, end);
}
TEGULA_CPU_INLINE vi load_step(const int32_t* p, long step, long begin, long end) {
  return gather_step(p, step, begin, end);
}
TEGULA_CPU_INLINE vu load_step(const uint32_t* p, long step, long begin, long end) {
  return gather_step(p, step, begin, end);
}
#if defined(TEGULA_CPU_AVX512)
template <int... I>
TEGULA_CPU_TEMPLATE vf twice_low(vf x, Lanes<I...>) {
  return __builtin_shufflevector(x, x, (I / 2)...);
}
template <int... I>
TEGULA_CPU_TEMPLATE vf twice_high(vf x, Lanes<I...>) {
  return __builtin_shufflevector(x, x, (W / 2 + I / 2)...);
}
TEGULA_CPU_INLINE void store_every_second(float* p, vf x) {
  typedef CountedLanes<W>::type All;
  __builtin_ia32_storeups512_mask(p, twice_low(x, All()), 0x5555);
  __builtin_ia32_storeups512_mask(p + W, twice_high(x, All()), 0x5555);
}
#endif
template <class T, class V>
TEGULA_CPU_TEMPLATE void store_step(T* p, long step, V x, vm where, long begin, long end) {
  if (step == 1 && begin <= 0 && all(where)) {
    if (end > 0) store_n(p, x, end);
    return;
  }
  store_lanes(p, x, where & lanes_between(begin, end), [&](int i) { return p + i * step; });
}
#if defined(TEGULA_CPU_AVX512)
TEGULA_CPU_INLINE void store_step(float* p, long step, vf x, vm where, long begin, long end) {
  if (step == 2 && begin <= 0 && end >= W && all(where)) return store_every_second(p, x);
  store_step<float, vf>(p, step, x, where, begin, end);
}
#endif

// ---- copies ----

TEGULA_CPU_INLINE long clamp_index(long x, long low, long high) {
  return x < low ? low : x > high ? high : x;
}
// The part [low, high) of an axis that begins at `offset` and has n elements, from its first element on.
TEGULA_CPU_INLINE long first_inside(long low, long offset, long n) { return clamp_index(low - offset, 0, n); }
TEGULA_CPU_INLINE long last_inside(long high, long offset, long n) {
  return clamp_index(high - offset, 0, n);
}

// `ahead` is a row that will be wanted.
template <class T, class S, class Map>
TEGULA_CPU_TEMPLATE void load_row(T* to, long to_col, long cols, const S* from, long from_col, long begin,
                                  long end, T fill, const Map& map, const S* ahead) {
  long c = 0;
  if (from_col == 1 && to_col == 1 && begin <= 0) {
    for (const long whole = end < cols ? end : cols; c + W <= whole; c += W) {
      __builtin_prefetch(ahead + c);
      store(to + c, map(Held<T>::of(load(from + c))));
    }
  }
  for (; c < cols; c += W) {
    auto x = splat(fill);
    if (from_col == 1 && begin <= c && end >= c + W) {
      x = map(Held<T>::of(load(from + c)));
    } else {
      x = select(lanes_between(begin - c, end - c),
                 map(Held<T>::of(load_step(from + c * from_col, from_col, begin - c, end - c))), splat(fill));
    }
    if (to_col == 1)
      store_n(to + c, x, cols - c);
    else
      store_strided(to + c * to_col, to_col, x, cols - c);
  }
}

// tile [rows, cols] <- memory; what is outside `inside` becomes `fill`.
template <class T, class S, class Map>
TEGULA_CPU_SHARED void load_tile(T* to, long to_row, long to_col, long rows, long cols, const S* from,
                                 long from_row, long from_col, Inside inside, T fill, Map map) {
  constexpr long line = 64, lines_ahead = 16;  // a row of one line takes less time than a line needs to come
  const long rows_ahead = cols * long(sizeof(S)) <= line ? lines_ahead : TEGULA_CPU_ROWS_AHEAD;
  for (long r = 0; r < rows; ++r) {
    const bool missing = r < inside.k_begin || r >= inside.k_end;
    const long ahead = r + rows_ahead < inside.k_end ? r + rows_ahead : r;
    load_row(to + r * to_row, to_col, cols, from + r * from_row, from_col, inside.n_begin,
             missing ? 0 : inside.n_end, fill, map, from + ahead * from_row);
  }
}

// tile [rows, cols] <- the transpose of a tile [cols, rows], by blocks of W x W.
template <class T>
TEGULA_CPU_SHARED void copy_transposed(T* to, long to_row, long rows, long cols, const T* from,
                                       long from_row) {
  T block[W * W], turned[W * W];
  for (long c = 0; c < cols; c += W) {
    const long width = cols - c < W ? cols - c : W;
    for (long r = 0; r < rows; r += W) {
      const long height = rows - r < W ? rows - r : W;
      for (long i = 0; i < W; ++i)
        store(block + i * W,
              i < width ? load_n(from + (c + i) * from_row + r, height) : decltype(load(from)){});
      T* const own = to + r * to_row + c;
      if (width == W) {
        store_transposed(own, to_row, height, block);
        continue;
      }
      store_transposed(turned, W, height, block);
      for (long i = 0; i < height; ++i) store_n(own + i * to_row, load(turned + i * W), width);
    }
  }
}

template <class S, class T>
TEGULA_CPU_TEMPLATE void store_row(S* to, long to_col, const T* from, long from_col, long begin, long end,
                                   const S* ahead) {
  long c = begin;
  if (to_col == 1 && from_col == 1) {
    for (; c + W <= end; c += W) {
      __builtin_prefetch(ahead + c, 1);
      store(to + c, for_memory(to, load(from + c)));
    }
  }
  for (; c < end; c += W) {
    const long n = end - c;
    const T* source = from + c * from_col;
    const auto x = for_memory(to, from_col == 1 ? load(source) : load_strided(source, from_col, n));
    if (to_col == 1)
      store_n(to + c, x, n);
    else
      store_strided(to + c * to_col, to_col, x, n);
  }
}

// Rows of memory <- columns of a tile, by blocks of W x W.
template <class S, class T>
TEGULA_CPU_SHARED void store_columns(S* to, long to_row, const T* from, long from_col, Inside inside) {
  T block[W * W], turned[W * W];
  for (long r = inside.k_begin; r < inside.k_end; r += W) {
    const long height = inside.k_end - r < W ? inside.k_end - r : W;
    for (long c = inside.n_begin; c < inside.n_end; c += W) {
      const long width = inside.n_end - c < W ? inside.n_end - c : W;
      for (long i = 0; i < W; ++i)
        store(block + i * W,
              i < width ? load_n(from + r + (c + i) * from_col, height) : decltype(load(from)){});
      store_transposed(turned, W, W, block);
      for (long i = 0; i < height; ++i)
        store_n(to + (r + i) * to_row + c, for_memory(to, load(turned + i * W)), width);
    }
  }
}

// memory <- the part `inside` of a tile.
template <class S, class T>
TEGULA_CPU_SHARED void store_tile(S* to, long to_row, long to_col, const T* from, long from_row,
                                  long from_col, Inside inside) {
  if constexpr (__is_same(T, float))
    if (from_row == 1 && to_col == 1 && from_col != 1)
      return store_columns(to, to_row, from, from_col, inside);
  for (long r = inside.k_begin; r < inside.k_end; ++r) {
    const long ahead = r + TEGULA_CPU_ROWS_AHEAD < inside.k_end ? r + TEGULA_CPU_ROWS_AHEAD : r;
    store_row(to + r * to_row, to_col, from + r * from_row, from_col, inside.n_begin, inside.n_end,
              to + ahead * to_row);
  }
}

// ---- integers and bits that vector.hpp lacks ----

TEGULA_CPU_INLINE uint32_t floordiv(uint32_t a, uint32_t b) { return div(a, b); }
TEGULA_CPU_INLINE uint32_t floormod(uint32_t a, uint32_t b) { return mod(a, b); }
TEGULA_CPU_INLINE vu floordiv(vu a, vu b) { return div(a, b); }
TEGULA_CPU_INLINE vu floormod(vu a, vu b) { return mod(a, b); }
TEGULA_CPU_INLINE uint32_t ceildiv(uint32_t a, uint32_t b) { return div(a, b) + (mod(a, b) != 0); }
TEGULA_CPU_INLINE int32_t ceildiv(int32_t a, int32_t b) {
  return div(a, b) + (mod(a, b) != 0 && (a < 0) == (b < 0));
}
TEGULA_CPU_INLINE int64_t ceildiv(int64_t a, int64_t b) {
  return div(a, b) + (mod(a, b) != 0 && (a < 0) == (b < 0));
}
TEGULA_CPU_INLINE vi ceildiv(vi a, vi b) {
  for (int i = 0; i < W; ++i) a[i] = ceildiv(a[i], b[i]);
  return a;
}
TEGULA_CPU_INLINE vu ceildiv(vu a, vu b) {
  for (int i = 0; i < W; ++i) a[i] = ceildiv(a[i], b[i]);
  return a;
}
TEGULA_CPU_INLINE vl ceildiv(vl a, vl b) {
  return map_lanes(a, b, [](int64_t x, int64_t y) { return ceildiv(x, y); });
}
TEGULA_CPU_INLINE uint32_t abs(uint32_t x) { return x; }
TEGULA_CPU_INLINE vu abs(vu x) { return x; }

// A dim or scalar of a call: its bits are in the low bytes.
template <class T>
TEGULA_CPU_TEMPLATE T value_of(const int64_t& cell) {
  T value;
  __builtin_memcpy(&value, &cell, sizeof(T));
  return value;
}

template <class To, class From>
TEGULA_CPU_TEMPLATE To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits keep their number");
  To y;
  __builtin_memcpy(&y, &x, sizeof(To));
  return y;
}
TEGULA_CPU_INLINE uint32_t reduce_absmax(vu x) { return reduce_max(x); }

TEGULA_CPU_END
