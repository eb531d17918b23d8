// How long a function takes.
//
//   const Function gemm = compile(gemm_relu(128, 128, 64));
//   std::puts(time(gemm, a, b, c).text().c_str());                   // 41.2 us, half of 57 rounds within 0.4
//   % time([&] { ops::softmax(x); }, Device::cuda());                  // anything that is called
//
// On a CUDA device each round stands between two events of the current stream, elsewhere between two readings
// of the clock. In front of each the caches are overwritten, unless that is declined, so that a round finds
// nothing of its inputs there. The first calls, which compile, do not count.
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
  int rounds = 0;     // 0: as many as take a third of a second, 5 to 101
  bool flush = true;  // overwrites the caches in front of each round
};

struct Timing {
  std::vector<double> seconds;  // of each round

  double median() const;
  double least() const;
  // Half of the rounds lie within this share of the median: half the distance of the quartiles.
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
