// Fragments that are rounded and only read afterwards: held as words of two elements where threads have
// pairs.
#include <gtest/gtest.h>

#include <cmath>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace rounded_test {

constexpr std::chrono::seconds most_time{60};

lang::Kernel rounded(int length) {
  using namespace lang;
  return kernel("rounded", [&] {
    lang::Tensor x = input("x", {length}, f32), out = output("out", {length}, f32);
    grid(1, {.threads = 32}, [&](Index) {
      Fragment own = load(x.at(0), {length}), small = own.to(bf16);
      parallel(own, [&](Index i) { own(i) = small(i) * 2; });
      copy(own, out.at(0));
    });
  });
}

class RoundedFragments : public ::testing::TestWithParam<int> {};

TEST_P(RoundedFragments, KeepAllElements) {
  const Watchdog watchdog("rounded fragments", most_time);
  const lang::Kernel program = rounded(GetParam());
  const Tensor x = Tensor::random_normal({GetParam()}, f32, 1);
  const auto result = [&](Target target) {
    const Tensor out = Tensor::full({GetParam()}, f32, NAN);
    compile(program, target)(x, out);
    return out.values<float>();
  };
  const auto expected = result(Target::interpreter());
  for (const Target target : {Target::emulated(), Target::emulated_sm90(), Target::cpu()})
    EXPECT_EQ(result(target), expected);
}

// With an even and an odd number of elements a thread.
INSTANTIATE_TEST_SUITE_P(Length, RoundedFragments, ::testing::Values(1, 2, 31, 33, 65, 96, 128));

}  // namespace
}  // namespace tegula::emulation
