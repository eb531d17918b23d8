// On a GPU: random calls of all operators against their formulas. All memory that the device hands
// out is filled with NaN before.
#include "ops/testing/random_calls.hpp"

#include "cuda/driver.hpp"
#include "cuda/memory.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::ops {
namespace random_calls_test {

constexpr std::chrono::seconds most_time{120};  // of some calls, compilation included
constexpr int shares = 2, calls_of_share = 4;

struct Row {
  std::string op;
  int share;
};

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const std::string& op : randomly_called())
    for (int share = 0; share < shares; ++share) result.push_back({op, share});
  return result;
}

class CudaRandomCalls : public ::testing::TestWithParam<Row> {};

TEST_P(CudaRandomCalls, AgreeWithTheFormula) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Row& row = GetParam();
  const Watchdog watchdog(row.op, most_time);
  const cuda::PoisonedAllocations poisoned;
  for (int i = 0; i < calls_of_share; ++i)
    expect_right(RandomCalls(static_cast<std::uint64_t>(1000 + row.share * calls_of_share + i)).of(row.op),
                 {Target::cuda()});
}

INSTANTIATE_TEST_SUITE_P(Table, CudaRandomCalls, ::testing::ValuesIn(rows()), [](const auto& info) {
  return info.param.op + "_" + std::to_string(info.param.share);
});

}  // namespace
}  // namespace tegula::ops
