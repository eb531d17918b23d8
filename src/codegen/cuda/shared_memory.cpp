#include "codegen/cuda/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::codegen {

std::int64_t SharedMemory::allocate(std::int64_t bytes, std::int64_t alignment, std::string what) {
  std::int64_t begin = 0;
  auto at = used_.begin();
  for (; at != used_.end(); ++at) {
    begin = (begin + alignment - 1) / alignment * alignment;
    if (begin + bytes <= at->begin) break;
    begin = at->end;
  }
  begin = (begin + alignment - 1) / alignment * alignment;
  used_.insert(at, {begin, begin + bytes, std::move(what)});
  if (begin + bytes > peak_) peak_ = begin + bytes, most_ = used_;
  return begin;
}

std::string SharedMemory::at_peak() const {
  std::vector<Interval> sorted = most_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Interval& a, const Interval& b) { return a.end - a.begin > b.end - b.begin; });
  std::string text;
  for (const Interval& i : sorted) text += fmt::format("\n  {} bytes: {}", i.end - i.begin, i.what);
  return text;
}

void SharedMemory::free(std::int64_t begin) {
  const auto at =
      std::find_if(used_.begin(), used_.end(), [&](const Interval& i) { return i.begin == begin; });
  internal_assert(at != used_.end(), "what is freed was allocated");
  used_.erase(at);
}

}  // namespace tegula::codegen
