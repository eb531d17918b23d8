#include "tegula/time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cuda/timing.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"

namespace tegula {

namespace {

constexpr double seconds_of_all_rounds = 1.0 / 3;
constexpr int fewest_rounds = 5, most_rounds = 101;
constexpr std::size_t bytes_of_caches = std::size_t{64} << 20;  // of a processor, more than its caches hold

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Overwrites what the caches of the processor hold.
class HostCaches {
 public:
  explicit HostCaches(bool flush) : memory_(flush ? bytes_of_caches : 0) {}
  void flush() {
    std::fill(memory_.begin(), memory_.end(), ++value_);
    asm volatile("" : : "r"(memory_.data()) : "memory");
  }

 private:
  std::vector<unsigned char> memory_;
  unsigned char value_ = 0;
};

int rounds_for(double once, const TimeOptions& options) {
  if (options.rounds > 0) return options.rounds;
  return std::clamp(static_cast<int>(seconds_of_all_rounds / std::max(once, 1e-9)), fewest_rounds,
                    most_rounds);
}

Timing on_host(const std::function<void()>& work, const TimeOptions& options) {
  HostCaches caches(options.flush);
  work();
  const double begin = now();
  caches.flush();
  work();
  const int rounds = rounds_for(now() - begin, options);
  Timing result;
  for (int round = 0; round < rounds; ++round) {
    caches.flush();
    const double start = now();
    work();
    result.seconds.push_back(now() - start);
  }
  return result;
}

Timing on_device(const std::function<void()>& work, const Device& device, const TimeOptions& options) {
  const Stream stream = current_stream(device);
  const auto milliseconds = [&](int rounds) {
    return cuda::milliseconds_of(stream, rounds, work, options.flush);
  };
  Timing result{milliseconds(rounds_for(milliseconds(3).back() * 1e-3 + 2e-4, options))};
  for (double& own : result.seconds) own *= 1e-3;
  return result;
}

double quantile(std::vector<double> values, double share) {
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

double Timing::median() const { return quantile(seconds, 0.5); }
double Timing::least() const { return *std::min_element(seconds.begin(), seconds.end()); }
double Timing::spread() const { return (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / 2 / median(); }

std::string Timing::text() const {
  const double own = median();
  const auto [number, unit] = own < 1e-3 ? std::pair(own * 1e6, "us")
                              : own < 1  ? std::pair(own * 1e3, "ms")
                                         : std::pair(own, "s");
  return fmt::format("{:.4g} {}, half of {} rounds within {:.1f} %", number, unit, seconds.size(),
                     100 * spread());
}

Timing time(const std::function<void()>& work, const Device& device, TimeOptions options) {
  if (options.rounds < 0)
    throw ArgumentError(
        fmt::format("time: {} rounds; give a positive number, or 0 for as many as take a third of "
                    "a second",
                    options.rounds));
  return device.kind == DeviceKind::cuda ? on_device(work, device, options) : on_host(work, options);
}

Timing time_in_order(const Function& function, std::span<const Argument> args, TimeOptions options) {
  Device device = Device::cpu();
  if (function.target().device() == DeviceKind::cuda) {
    device = Device::cuda();
    for (const Argument& own : args)
      if (const TensorRef* tensor = own.tensor(); tensor && tensor->device.kind == DeviceKind::cuda)
        device = tensor->device;
  }
  return time([&] { function.call_in_order(args); }, device, options);
}

}  // namespace tegula
