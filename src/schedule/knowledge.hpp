// What an actor knows to have happened: vector clocks, one per proxy.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace tegula::schedule {

using Time = std::uint32_t;

// Greatest known time per component. Components are the ordinary accesses of a warp, its asynchronous queues,
// and the phases of barriers.
using Clock = std::vector<Time>;

inline void join(Clock& into, const Clock& from) {
  const std::size_t n = std::min(into.size(), from.size());
  Time* const a = into.data();
  const Time* const b = from.data();
  for (std::size_t i = 0; i < n; ++i) a[i] = std::max(a[i], b[i]);
}

struct Knowledge {
  Clock seen;
  Clock fenced;         // visible to the asynchronous proxy in shared memory
  Clock fenced_global;  // the same in global memory

  Knowledge() = default;
  Knowledge(std::size_t components, bool has_global)
      : seen(components), fenced(components), fenced_global(has_global ? components : 0) {}
  void join(const Knowledge& other) {
    schedule::join(seen, other.seen);
    schedule::join(fenced, other.fenced);
    schedule::join(fenced_global, other.fenced_global);
  }
  void clear() {
    std::fill(seen.begin(), seen.end(), 0);
    std::fill(fenced.begin(), fenced.end(), 0);
    std::fill(fenced_global.begin(), fenced_global.end(), 0);
  }
};

}  // namespace tegula::schedule
