// Where shared tiles lie: each in its interval while it is used, its elements in rows or swizzled.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/view.hpp"

namespace tegula::codegen {

// How the elements of a tile are ordered. A swizzled matrix is cut into blocks of `columns` columns; each row
// of a block is 32, 64 or 128 bytes, and its pieces of 16 bytes are exchanged among neighbouring rows so that
// the hardware reads eight rows without conflict. This is what the copy engine and the tensor cores expect.
struct TileOrder {
  int columns = 0;  // 0: row by row

  bool is_swizzled() const { return columns != 0; }
};

TileOrder swizzled_order(const ir::Buffer& tile);

// A first-fit allocator of intervals.
class SharedMemory {
 public:
  std::int64_t allocate(std::int64_t bytes, std::int64_t alignment);
  void free(std::int64_t begin);
  std::int64_t peak() const { return peak_; }

 private:
  struct Interval {
    std::int64_t begin, end;
  };
  std::vector<Interval> used_;  // in ascending order
  std::int64_t peak_ = 0;
};

}  // namespace tegula::codegen
