// Where shared tiles lie: each in its interval while it is used, its elements in rows or swizzled.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "layout/tile_order.hpp"

namespace tegula::codegen {

using layout::TileOrder;

// A first-fit allocator of intervals.
class SharedMemory {
 public:
  // `what` the interval is for, in words for the user.
  std::int64_t allocate(std::int64_t bytes, std::int64_t alignment, std::string what = "barriers");
  void free(std::int64_t begin);
  // Nothing below `end` is given out from now on.
  void reserve(std::int64_t end) { used_ = {{0, end, ""}}; }
  std::int64_t peak() const { return peak_; }
  // What lay there when most was in use, the largest first: each with its size, a line for each.
  std::string at_peak() const;

 private:
  struct Interval {
    std::int64_t begin, end;
    std::string what;
  };
  std::vector<Interval> used_;  // in ascending order
  std::vector<Interval> most_;  // those of the peak
  std::int64_t peak_ = 0;
};

}  // namespace tegula::codegen
