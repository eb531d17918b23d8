#include "codegen/cuda/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::codegen {

namespace {

constexpr int lives_on = -1;

}  // namespace

std::int64_t SharedMemory::allocate(std::int64_t bytes, std::int64_t alignment, std::string what) {
  std::int64_t begin = 0;
  auto at = used_.begin();
  for (; at != used_.end(); ++at) {
    begin = (begin + alignment - 1) / alignment * alignment;
    if (begin + bytes <= at->begin) break;
    begin = at->end;
  }
  begin = (begin + alignment - 1) / alignment * alignment;
  history_.push_back({begin, begin + bytes, what, turn_++, lives_on});
  used_.insert(at, {begin, begin + bytes, std::move(what), history_.size() - 1});
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
  history_[at->number].until = turn_++;
  used_.erase(at);
}

// What is in use stays so to the end.
void SharedMemory::reserve(std::int64_t end) { used_ = {{0, end, "", history_.size()}}; }

std::vector<SharedInterval> SharedMemory::history() const {
  std::vector<SharedInterval> result = history_;
  for (SharedInterval& own : result) {
    if (own.until == lives_on) own.until = turn_;
  }
  return result;
}

}  // namespace tegula::codegen
