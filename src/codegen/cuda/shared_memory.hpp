// Allocates shared tiles: each has an interval of addresses while it is live, with elements in rows or
// swizzled.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "layout/tile_order.hpp"

namespace tegula::codegen {

using layout::TileOrder;

// What lay in an interval of shared memory, and when: turns count what was given out or freed, in the order
// of the printed text.
struct SharedInterval {
  std::int64_t begin, end;
  std::string what;
  int from, until;  // turns; `until` is excluded
};

// A first-fit allocator of intervals.
class SharedMemory {
 public:
  // `what` the interval is for, in words for the user.
  std::int64_t allocate(std::int64_t bytes, std::int64_t alignment, std::string what = "barriers");
  void free(std::int64_t begin);
  // Nothing below `end` is given out from now on.
  void reserve(std::int64_t end);
  std::int64_t peak() const { return peak_; }
  // What lay there when most was in use, the largest first: each with its size, a line for each.
  std::string at_peak() const;
  // All that was ever given out, in that order.
  std::vector<SharedInterval> history() const;

 private:
  struct Interval {
    std::int64_t begin, end;
    std::string what;
    std::size_t number = 0;  // in history_
  };
  std::vector<Interval> used_;  // in ascending order
  std::vector<Interval> most_;  // those of the peak
  std::vector<SharedInterval> history_;
  int turn_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace tegula::codegen
