// Scans: what stands before an element, and all of a group, combined level by level. A level is a digit of
// the element's coordinate: of registers, of lanes of a warp, or of warps.
#pragma once
#include "math.cuh"
#include "memory.cuh"

namespace tg {

// A value and whether a segment begins in it or in what it combines.
template <class T>
struct Marked {
  T value;
  bool start;
};
template <class Op>
struct Segmented {
  template <class T>
  TG_DEVICE Marked<T> of(Marked<T> a, Marked<T> b) {
    return {b.start ? b.value : Op::of(a.value, b.value), a.start || b.start};
  }
};

template <class T>
TG_DEVICE T value_of(T x) {
  return x;
}
template <class T>
TG_DEVICE T value_of(Marked<T> x) {
  return x.value;
}
template <class T>
TG_DEVICE T from_lane(T x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
template <class T>
TG_DEVICE Marked<T> from_lane(Marked<T> x, int lane) {
  return {from_lane(x.value, lane), __shfl_sync(0xffffffffu, int(x.start), lane) != 0};
}

// Digit `extent` of a number whose lower digits count `step`: that number without it.
template <int step, int extent>
TG_DEVICE int without_digit(int number) {
  return number % step + number / (step * extent) * step;
}

// Neighbours are `extent` registers, `step` apart.
template <class Op, int step, int extent, bool reverse, class T, int count>
TG_DEVICE void scan_registers(const T (&all)[count], T (&before)[count], T (&total)[count / extent], T none) {
#pragma unroll
  for (int t = 0; t < count / extent; ++t) {
    const int base = t % step + t / step * (step * extent);
    T sum = none;
#pragma unroll
    for (int i = 0; i < extent; ++i) {
      const int at = base + (reverse ? extent - 1 - i : i) * step;
      before[at] = sum;
      sum = Op::of(sum, all[at]);
    }
    total[t] = sum;
  }
}

// The same, where each register takes what stands before it in, so that nothing is held besides.
template <class Op, int step, int extent, bool reverse, class T, int count>
TG_DEVICE void scan_in_place(T (&all)[count], T (&total)[count / extent]) {
#pragma unroll
  for (int t = 0; t < count / extent; ++t) {
    const int base = t % step + t / step * (step * extent);
#pragma unroll
    for (int i = 1; i < extent; ++i) {
      const int at = base + (reverse ? extent - 1 - i : i) * step;
      all[at] = Op::of(all[at + (reverse ? step : -step)], all[at]);
    }
    total[t] = all[base + (reverse ? 0 : (extent - 1) * step)];
  }
}

// Neighbours are `extent` lanes, `step` apart. `total` becomes that of all of them.
template <class Op, int step, int extent, bool reverse, class T, int count>
TG_DEVICE void scan_lanes(T (&total)[count], T (&before)[count], T none) {
  const int lane = int(threadIdx.x) % 32, own = lane / step % extent;
  const int place = reverse ? extent - 1 - own : own, towards_first = reverse ? step : -step;
  const int last = lane + (reverse ? -own : extent - 1 - own) * step;
#pragma unroll
  for (int r = 0; r < count; ++r) {
    T sum = total[r];
#pragma unroll
    for (int s = 1; s < extent; s *= 2) {
      const T other = from_lane(sum, place >= s ? lane + towards_first * s : lane);
      if (place >= s) sum = Op::of(other, sum);
    }
    const T other = from_lane(sum, place >= 1 ? lane + towards_first : lane);
    before[r] = place >= 1 ? other : none;
    total[r] = from_lane(sum, last);
  }
}

// Neighbours are warps, or threads, whose totals are in shared memory, `step` apart from the first of them;
// the totals of further registers are `next` further.
template <class Op, int step, int extent, int next, bool reverse, class T, int count, class Read>
TG_DEVICE void scan_parts(T (&total)[count], T (&before)[count], T none, int first, int own, Read read) {
#pragma unroll
  for (int r = 0; r < count; ++r) {
    T sum = none;
#pragma unroll
    for (int i = 0; i < extent; ++i) {
      const int neighbour = reverse ? extent - 1 - i : i;
      if (neighbour == own) before[r] = sum;
      sum = Op::of(sum, read(first + neighbour * step + r * next));
    }
    total[r] = sum;
  }
}

// What stands before an element at two levels. The upper level has no digit of `extent` above `step`.
template <class Op, int step, int extent, class T, int uppers, int lowers>
TG_DEVICE void add_before(const T (&upper)[uppers], T (&lower)[lowers]) {
#pragma unroll
  for (int r = 0; r < lowers; ++r) lower[r] = Op::of(upper[without_digit<step, extent>(r)], lower[r]);
}

}  // namespace tg
