// Times of several works that run one after the other in rounds, so that a change of the machine's clock or
// of what else it does meets all of them.
#pragma once
#include <functional>
#include <vector>

namespace tegula::bench {

using Work = std::function<void()>;

struct Times {
  std::vector<std::vector<double>> seconds;  // of each work, one a round

  double median(std::size_t work) const;
  // Median over the rounds of the time of `one` by that of `other` in the same round.
  double ratio(std::size_t one, std::size_t other) const;
};

// Before it is timed in a round, each work runs once, after a pause: threads of others that still
// wait for work in a loop have gone to sleep by then.
Times interleaved(const std::vector<Work>& works, int rounds);

double median(std::vector<double> values);
double seconds_of(const Work& work);

}  // namespace tegula::bench
