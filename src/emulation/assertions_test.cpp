// Assertions that fail in a block whose roles would wait for each other: both leave it, and the next ones go
// on. Where the producer cannot leave in time, a block has no roles.
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::emulation {
namespace assertions_test {

constexpr int tile = 64, depth = 64;
constexpr std::chrono::seconds most_time{60};
enum class Place { before_loads, between_loads, behind_loads };

// c = a b, with an assertion about the tile's row of `limits`.
lang::Kernel product(Place place) {
  using namespace lang;
  return kernel("product", [&] {
    Dim m("m"), n("n"), k("k"), tiles("tiles");
    lang::Tensor a = input("a", {m, k}, bf16), b = input("b", {k, n}, bf16),
                 limits = input("limits", {tiles}, i32), c = output("c", {m, n}, f32);
    grid(ceildiv(m, tile), ceildiv(n, tile), [&](Index x, Index y) {
      auto check = [&] { assert_that(limits(x) > 0, "limits are positive"); };
      if (place == Place::before_loads) check();
      Fragment sum({tile, tile}, f32, 0);
      pipelined(ceildiv(k, depth), {.stages = 2}, [&](Index i) {
        Shared a_tile({tile, depth}, bf16), b_tile({depth, tile}, bf16);
        copy(a.at(x * tile, i * depth), a_tile);
        if (place == Place::between_loads) check();
        copy(b.at(i * depth, y * tile), b_tile);
        gemm(a_tile, b_tile, sum);
      });
      if (place == Place::behind_loads) check();
      copy(sum, c.at(x * tile, y * tile));
    });
  });
}

class AssertionsOfRoles : public ::testing::TestWithParam<Place> {};

TEST_P(AssertionsOfRoles, EndTheirBlockAlone) {
  const Watchdog watchdog("assertions of roles", most_time);
  const lang::Kernel program = product(GetParam());
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  EXPECT_EQ(text.find("---- producer") != std::string::npos, GetParam() == Place::before_loads);
  const Function function = compile(program, Target::emulated_sm90());
  const Tensor a = Tensor::full({5 * tile, 200}, bf16, 1), b = Tensor::full({200, 2 * tile}, bf16, 1);
  const Tensor good = Tensor::from<std::int32_t>({1, 2, 3, 4, 5}),
               bad = Tensor::from<std::int32_t>({1, 0, 3, -4, 5});
  const Tensor c = Tensor::zeros({5 * tile, 2 * tile}, f32);
  function(a, b, good, c);
  for (const double x : c.values<double>()) ASSERT_EQ(x, 200);
  const Tensor again = Tensor::zeros({5 * tile, 2 * tile}, f32);
  EXPECT_ERROR(ProgramError, "limits are positive", function(a, b, bad, again));
}

INSTANTIATE_TEST_SUITE_P(Places, AssertionsOfRoles,
                         ::testing::Values(Place::before_loads, Place::between_loads, Place::behind_loads));

}  // namespace
}  // namespace tegula::emulation
