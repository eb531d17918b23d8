// Scans along the rows of tiles: running sums, maxima and minima, W elements at a time.
#pragma once
#include "tile.hpp"

TEGULA_CPU_BEGIN

struct ScanSum {
  template <class V>
  static TEGULA_CPU_MEMBER V of(V a, V b) {
    return a + b;
  }
  template <class T>
  static TEGULA_CPU_MEMBER T none(T) {
    return 0;
  }
};
struct ScanMax {
  template <class V>
  static TEGULA_CPU_MEMBER V of(V a, V b) {
    return max(a, b);
  }
  static TEGULA_CPU_MEMBER float none(float) { return -__builtin_inff(); }
  static TEGULA_CPU_MEMBER int32_t none(int32_t) { return INT32_MIN; }
  static TEGULA_CPU_MEMBER uint32_t none(uint32_t) { return 0; }
};
struct ScanMin {
  template <class V>
  static TEGULA_CPU_MEMBER V of(V a, V b) {
    return min(a, b);
  }
  static TEGULA_CPU_MEMBER float none(float) { return __builtin_inff(); }
  static TEGULA_CPU_MEMBER int32_t none(int32_t) { return INT32_MAX; }
  static TEGULA_CPU_MEMBER uint32_t none(uint32_t) { return UINT32_MAX; }
};

// Each lane has what the lane `Steps` before it had, or after it; the first ones, or the last, `none`.
template <int Steps, bool Reverse, class V, int... I>
TEGULA_CPU_TEMPLATE V shifted(V x, V none, Lanes<I...>) {
  if constexpr (Reverse)
    return __builtin_shufflevector(x, none, (I + Steps < W ? I + Steps : W + I)...);
  else
    return __builtin_shufflevector(x, none, (I >= Steps ? I - Steps : W + I)...);
}
template <class Op, bool Reverse, int Steps = 1, class V>
TEGULA_CPU_TEMPLATE V scan_lanes(V x, V none) {
  x = Op::of(shifted<Steps, Reverse>(x, none, typename CountedLanes<W>::type()), x);
  if constexpr (2 * Steps < W)
    return scan_lanes<Op, Reverse, 2 * Steps>(x, none);
  else
    return x;
}

// to[i] = the combination of from[j] over j <= i, or j >= i if `Reverse`; `Exclusive` leaves out j = i. What
// lies behind a row is padding of it or of the tile. The rows may be one.
template <class Op, bool Exclusive, bool Reverse, class T, class Map>
TEGULA_CPU_SHARED void scan_row(T* to, const T* from, long n, Map map) {
  typedef decltype(load(from)) V;
  const V none = splat(Op::none(T(0)));
  V total = none;
  for (long done = 0; done < n; done += W) {
    const long at = !Reverse ? done : n - done < W ? 0 : n - done - W, count = n - done < W ? n - done : W;
    const V x = count == W ? load(from + at) : load_n(from + at, count, none);
    const V here = scan_lanes<Op, Reverse>(x, none);
    V result = here;
    if constexpr (Exclusive) result = shifted<1, Reverse>(here, none, typename CountedLanes<W>::type());
    store_n(to + at, map(Op::of(total, result)), count);
    total = Op::of(total, splat(here[Reverse ? 0 : W - 1]));
  }
}

TEGULA_CPU_END
