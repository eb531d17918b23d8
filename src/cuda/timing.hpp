// Times of work on a device, as benchmarks take them.
#pragma once
#include <functional>
#include <vector>

#include "tegula/stream.hpp"

namespace tegula::cuda {

// Overwrites more memory than the second-level cache holds, in the order of the stream, so that what follows
// finds nothing of its inputs there.
class CacheFlush {
 public:
  explicit CacheFlush(const Device& device = Device::cuda());
  void operator()(const Stream& stream) const;

 private:
  Tensor memory_;
};

// Milliseconds of what `body` queues on the stream, round by round, between two events. Each round begins
// with flushes, unless these are declined: so many that the host has time to queue the work before the device
// reaches it.
std::vector<double> milliseconds_of(const Stream& stream, int rounds, const std::function<void()>& body,
                                    bool flush = true);

}  // namespace tegula::cuda
