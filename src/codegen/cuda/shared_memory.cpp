#include "codegen/cuda/shared_memory.hpp"

#include <algorithm>

namespace tegula::codegen {

TileOrder swizzled_order(const ir::Buffer& tile) {
  if (tile.rank() != 2 || !tile.type.is_floating()) return {};
  return layout::swizzled_order(tile.extent(0), tile.extent(1), tile.type.bytes());
}

std::int64_t SharedMemory::allocate(std::int64_t bytes, std::int64_t alignment) {
  std::int64_t begin = 0;
  auto at = used_.begin();
  for (; at != used_.end(); ++at) {
    begin = (begin + alignment - 1) / alignment * alignment;
    if (begin + bytes <= at->begin) break;
    begin = at->end;
  }
  begin = (begin + alignment - 1) / alignment * alignment;
  used_.insert(at, {begin, begin + bytes});
  peak_ = std::max(peak_, begin + bytes);
  return begin;
}

void SharedMemory::free(std::int64_t begin) {
  const auto at =
      std::find_if(used_.begin(), used_.end(), [&](const Interval& i) { return i.begin == begin; });
  internal_assert(at != used_.end(), "what is freed was allocated");
  used_.erase(at);
}

}  // namespace tegula::codegen
