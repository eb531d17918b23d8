// Tiles of 8-bit floats that come as bytes and that warps of a producer widen, beside the interpreter.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "passes/cuda/testing/widened_program.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace widened_tiles_test {

using passes::testing::WidenedCase;

constexpr std::chrono::seconds most_time{60};

class WidenedTiles : public ::testing::TestWithParam<WidenedCase> {};

TEST_P(WidenedTiles, GiveTheSame) {
  const Watchdog watchdog("widened tiles", most_time);
  const WidenedCase& c = GetParam();
  if (!c.engine) return;
  const lang::Kernel kernel = passes::testing::widened_program(c);
  const char* widens = c.missing > 0 ? "tg::widen_columns<" : "tg::widen_bytes<";
  EXPECT_EQ(text_with_roles(kernel).find(widens) != std::string::npos, c.tiles > 0);
  const int columns = c.columns - c.missing;
  for (const auto& [m, n] : {std::pair(64, 192), {70, 150}, {1, 5}})
    expect_as_interpreted(kernel,
                          {Tensor::random_integers({m, c.columns}, c.to, 1, 0, 1),
                           Tensor::random_integers({n, columns}, c.from, 2, 0, 1),
                           Tensor::random_integers({n, columns}, c.both ? c.from : c.to, 3, 0, 1),
                           Tensor::from<std::int32_t>({1, 0, 2, 1, 9, 1, -1, 0}),
                           Tensor::random_integers({n, 3}, f32, 4, 0, 1)},
                          {m, c.columns}, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, WidenedTiles, ::testing::ValuesIn(passes::testing::all_widened),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace widened_tiles_test
}  // namespace tegula::emulation
