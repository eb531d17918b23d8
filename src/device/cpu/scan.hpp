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

// A row in memory: the distance of its elements, those that exist, and how many bytes before they are read
// they are fetched.
struct ScannedRow {
  long step, begin, end, ahead;
  TEGULA_CPU_MEMBER bool is_whole(long n) const { return step == 1 && begin <= 0 && end >= n; }
};

// Elements [at, at + count) of a row; those that do not exist are `fill`, and lanes behind them `none`.
template <class T, class S, class V>
TEGULA_CPU_TEMPLATE V scanned(const S* from, ScannedRow row, long at, long count, T fill, V none) {
  const long end = row.end - at < count ? row.end - at : count;
  const V x = Held<T>::of(load_step(from + at * row.step, row.step, row.begin - at, end));
  return select(lanes_below(count), select(lanes_between(row.begin - at, end), x, splat(fill)), none);
}

// to[i] = the combination of from[j] over j <= i, or j >= i if `Reverse`; `Exclusive` leaves out j = i. The
// rows are those of tiles or of tensors, and may be one. With `pairs`, the processor narrows to bf16.
template <class Op, bool Exclusive, bool Reverse, class To, class From, class T, class Map>
TEGULA_CPU_SHARED void scan_row(To* to, ScannedRow to_row, const From* from, ScannedRow from_row, long n,
                                T fill, Map map, bool pairs) {
  typedef decltype(splat(fill)) V;
  const V none = splat(Op::none(fill));
  const bool reads = from_row.is_whole(n), writes = to_row.is_whole(n);
  V total = none;
  for (long done = 0; done < n; done += W) {
    const long at = !Reverse ? done : n - done < W ? 0 : n - done - W, count = n - done < W ? n - done : W;
    V x = none;
    if (reads && count == W) {
      __builtin_prefetch((const char*)(from + at) + (Reverse ? -from_row.ahead : from_row.ahead));
      x = Held<T>::of(load(from + at));
    } else {
      x = scanned(from, from_row, at, count, fill, none);
    }
    const V here = scan_lanes<Op, Reverse>(x, none);
    V result = here;
    if constexpr (Exclusive) result = shifted<1, Reverse>(here, none, typename CountedLanes<W>::type());
    const auto stored = for_memory(to, map(Op::of(total, result)));
    if (writes && count == W) {
      __builtin_prefetch((const char*)(to + at) + (Reverse ? -to_row.ahead : to_row.ahead), 1);
      store(to + at, stored, pairs);
    } else {
      store_step(to + at * to_row.step, to_row.step, stored, splat(true), to_row.begin - at,
                 to_row.end - at < count ? to_row.end - at : count);
    }
    total = Op::of(total, splat(here[Reverse ? 0 : W - 1]));
  }
}

TEGULA_CPU_END
