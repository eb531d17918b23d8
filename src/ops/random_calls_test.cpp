// Random calls of all operators against their formulas. TEGULA_RANDOM_CALLS is how many of each; it
// costs a compiler's time for every one.
#include "ops/testing/random_calls.hpp"

#include <cstdlib>

#include "runtime/execution/executable.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::ops {
namespace random_calls_test {

constexpr std::chrono::seconds most_time{300};  // of a call on all executors, compilers included

int calls_of_each() {
  const char* count = std::getenv("TEGULA_RANDOM_CALLS");
  return count ? std::atoi(count) : 3;
}

struct Row {
  std::string op;
  int seed;
};

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const std::string& op : randomly_called())
    for (int seed = 0; seed < calls_of_each(); ++seed) result.push_back({op, seed});
  return result;
}

class RandomOperatorCalls : public testing::TestWithParam<Row> {};

TEST_P(RandomOperatorCalls, AgreeWithTheFormula) {
  const Row& row = GetParam();
  const Watchdog watchdog(row.op + " " + std::to_string(row.seed), most_time);
  std::vector<Target> targets{Target::interpreter()};
  if (!(resolve(Target::automatic()) == Target::interpreter())) targets.push_back(Target::cpu());
  if (targets.size() > 1 && row.seed % 3 == 0) targets.push_back(Target::emulated_sm90());
  expect_right(RandomCalls(static_cast<std::uint64_t>(row.seed)).of(row.op), targets);
}

INSTANTIATE_TEST_SUITE_P(Table, RandomOperatorCalls, testing::ValuesIn(rows()), [](const auto& info) {
  return info.param.op + "_" + std::to_string(info.param.seed);
});

}  // namespace
}  // namespace tegula::ops
