// Measures how long a function takes.
//
//   const Function gemm = compile(gemm_relu(128, 128, 64));
//   std::puts(time(gemm, a, b, c).text().c_str());     // 41.2 us, half of 57 rounds within 0.4 %
//   time([&] { ops::softmax(x); }, Device::cuda());    // anything that can be called
//
// On a CUDA device each round is timed by two events on the current stream, elsewhere by the host's clock.
// Before each round the caches are overwritten (unless `flush` is false), so that the inputs of a round come
// from memory. The first calls, which compile, are not counted.
#pragma once
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct TimeOptions {
  int rounds = 0;     // 0: as many as fit a third of a second, 5 to 101
  bool flush = true;  // overwrite the caches before each round
};

struct Timing {
  std::vector<double> seconds;  // per round

  double median() const;
  double least() const;
  // Half of the rounds are within this fraction of the median: half the interquartile range.
  double spread() const;
  std::string text() const;
};

Timing time(const std::function<void()>& work, const Device& device = Device::cpu(),
            TimeOptions options = {});
Timing time_in_order(const Function& function, std::span<const Argument> args, TimeOptions options = {});
template <class... Args>
requires(std::convertible_to<const Args&, Argument>&&...) Timing
    time(const Function& function, const Args&... args) {
  return time_in_order(function, std::array<Argument, sizeof...(Args)>{Argument(args)...});
}

}  // namespace tegula
TEGULA_API_END
