#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tegula::bench {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Times::median(std::size_t work) const { return bench::median(seconds[work]); }

double Times::ratio(std::size_t one, std::size_t other) const {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < seconds[one].size(); ++round)
    ratios.push_back(seconds[one][round] / seconds[other][round]);
  return bench::median(ratios);
}

Times interleaved(const std::vector<Work>& works, int rounds) {
  Times times{std::vector<std::vector<double>>(works.size())};
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      works[i]();
      times.seconds[i].push_back(seconds_of(works[i]));
    }
  }
  return times;
}

}  // namespace tegula::bench
