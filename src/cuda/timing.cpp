#include "cuda/timing.hpp"

#include <algorithm>
#include <optional>

#include "cuda/gpu.hpp"
#include "cuda/memory.hpp"

namespace tegula::cuda {
namespace {

constexpr std::int64_t smallest_flush = std::int64_t{256} << 20;

std::int64_t flush_bytes(const Device& device) {
  return std::max(smallest_flush, static_cast<std::int64_t>(2 * Gpu::get(device.index).l2_bytes()));
}

}  // namespace

CacheFlush::CacheFlush(const Device& device) : memory_(Tensor::empty({flush_bytes(device)}, u8, device)) {}

void CacheFlush::operator()(const Stream& stream) const {
  const StreamScope scope(stream);
  clear(memory_);
}

std::vector<double> milliseconds_of(const Stream& stream, int rounds, const std::function<void()>& body,
                                    bool flushes) {
  const StreamScope scope(stream);
  std::optional<CacheFlush> flush;
  if (flushes) flush.emplace(stream.device());
  body();
  std::vector<std::pair<Event, Event>> events;
  for (int i = 0; i < rounds; ++i) {
    events.emplace_back(Event(stream.device()), Event(stream.device()));
    if (flush) (*flush)(stream);
    events.back().first.record(stream);
    body();
    events.back().second.record(stream);
  }
  stream.synchronize();
  std::vector<double> times;
  for (const auto& [begin, end] : events) times.push_back(Event::milliseconds(begin, end));
  return times;
}

}  // namespace tegula::cuda
