// When elements were accessed, and whether two accesses are ordered.
//
// Every block, instance of each_group and iteration of `parallel` has its own moments, and moments only
// increase. Two accesses are unordered if the earlier one is in a gap: among the moments of other blocks of
// this grid, of other instances of this each_group, or of other iterations of this loop. So one moment per
// element suffices for its last write. For reads, one moment per kind of gap suffices: the latest one before
// the end of the gap.
#pragma once
#include <cstdint>

namespace tegula::interp {

using Moment = std::uint64_t;

enum class Level : std::uint8_t { blocks, instances, iterations };
inline constexpr int levels = 3;

struct Now {
  struct Gap {
    Moment begin = 0, end = 0;
    bool holds(Moment moment) const { return begin <= moment && moment < end; }
  };

  Moment moment = 0;
  Gap gaps[levels];
  Moment own = 0;  // the largest end of a gap: what came later is ordered

  void set(Level level, Gap gap) {
    gaps[static_cast<int>(level)] = gap;
    own = 0;
    for (const Gap& g : gaps) own = g.end > own ? g.end : own;
  }
  const Gap& gap(Level level) const { return gaps[static_cast<int>(level)]; }
  // Whether an access then is unordered with one now.
  bool meets(Moment then) const {
    if (then >= own) return false;
    return gaps[0].holds(then) || gaps[1].holds(then) || gaps[2].holds(then);
  }
};

// The accesses of one kind to an element, of which there may be many at a time.
struct Seen {
  Moment last = 0;
  Moment before[levels] = {};  // the latest one that is before the end of that gap

  void note(const Now& now) {
    if (last == now.moment) return;
    for (int level = 0; level < levels; ++level) {
      if (last < now.gaps[level].end) before[level] = last;
    }
    last = now.moment;
  }
  // An access from `born` on that is unordered with one now, or 0.
  Moment meets(const Now& now, Moment born) const {
    if (last == 0) return 0;
    for (int level = 0; level < levels; ++level) {
      const Moment then = last < now.gaps[level].end ? last : before[level];
      if (then >= born && now.gaps[level].holds(then)) return then;
    }
    return 0;
  }
};

}  // namespace tegula::interp
