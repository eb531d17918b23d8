#include "measure.hpp"

#include <algorithm>

#include "cuda/timing.hpp"

namespace tegula::bench {

namespace {

constexpr double most_error = 2e-2;    // of a sample: rounding of bf16
constexpr double budget_ms = 1000;     // of a workload
constexpr double hopeless_ms = 20000;  // of one call, beyond which it is not repeated
constexpr int most_rounds = 100;       // more than a clock takes that the workload before has slowed down

double at(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

}  // namespace

Measured measure(const Workload& workload) {
  Measured result;
  try {
    const Workload::Ready ready = workload.prepare();
    const Stream stream = Stream::of_default();
    const double first = cuda::milliseconds_of(stream, 1, ready.call).front();
    result.error = ready.error();
    const int rounds =
        first > hopeless_ms ? 1 : std::clamp(static_cast<int>(budget_ms / first), 3, most_rounds);
    std::vector<double> times = cuda::milliseconds_of(stream, rounds, ready.call);
    std::sort(times.begin(), times.end());
    result.ms = at(times, 0.5), result.p20 = at(times, 0.2), result.p80 = at(times, 0.8);
    result.tflops = (ready.flops > 0 ? ready.flops : workload.flops) / result.ms / 1e9;
    result.nominal = ready.nominal / result.ms / 1e9;
    result.right = result.error < most_error;
    result.facts = ready.facts;
  } catch (const std::exception& failure) { result.failure = failure.what(); }
  return result;
}

}  // namespace tegula::bench
