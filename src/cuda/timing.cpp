#include "cuda/timing.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "cuda/gpu.hpp"
#include "cuda/memory.hpp"

namespace tegula::cuda {
namespace {

constexpr std::int64_t smallest_flush = std::int64_t{256} << 20;

std::int64_t flush_bytes(const Device& device) {
  return std::max(smallest_flush, static_cast<std::int64_t>(2 * Gpu::get(device.index).l2_bytes()));
}

// How often a round clears memory first: a call is timed from its start on the device only if the host has
// launched all of it by then, so the device must be busy for longer than the host takes for a call.
int flushes_of_round(const Stream& stream, const std::function<void()>& body) {
  constexpr double seconds_of_flush = 80e-6;
  constexpr int most = 8;
  stream.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> own = std::chrono::steady_clock::now() - begin;
  return std::min(most, 1 + static_cast<int>(2 * own.count() / seconds_of_flush));
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
  const int repeats = flush ? flushes_of_round(stream, body) : 0;
  std::vector<std::pair<Event, Event>> events;
  for (int i = 0; i < rounds; ++i) {
    events.emplace_back(Event(stream.device()), Event(stream.device()));
    for (int repeat = 0; repeat < repeats; ++repeat) (*flush)(stream);
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
