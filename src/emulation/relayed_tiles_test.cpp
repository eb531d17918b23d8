// What steps pass on to the next ones through shared memory, as the interpreter has it.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "passes/cuda/testing/relayed_program.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace relayed_tiles_test {

constexpr std::chrono::seconds most_time{60};

class RelayedTilesEmulated : public ::testing::TestWithParam<passes::testing::RelayCase> {};

TEST_P(RelayedTilesEmulated, AreThoseOfTheStepBefore) {
  const Watchdog watchdog("relayed tiles", most_time);
  const lang::Kernel program = passes::testing::relay_program(GetParam());
  const bool waits = text_with_roles(program).find("tg::wait_full_last(carried_ring_)") != std::string::npos;
  EXPECT_EQ(waits, GetParam().rings > 0);
  const Tensor a = Tensor::random_integers({128, 64}, GetParam().type, 1, -1, 1),
               x = Tensor::random_integers({3, 400, 64}, GetParam().type, 2, -1, 1);
  expect_as_interpreted(program, {a, x}, {128, 64}, 0);
}

INSTANTIATE_TEST_SUITE_P(Programs, RelayedTilesEmulated, ::testing::ValuesIn(passes::testing::relays),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace relayed_tiles_test
}  // namespace tegula::emulation
