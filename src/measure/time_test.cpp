#include "tegula/time.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "tegula/error.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace {

TEST(Time, CountsTheRoundsAndNotTheFirstCalls) {
  int calls = 0;
  const auto work = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(calls++ == 0 ? 60 : 3)); };
  const Timing timing = time(work, Device::cpu(), {.rounds = 7, .flush = false});
  EXPECT_EQ(timing.seconds.size(), 7U);
  EXPECT_EQ(calls, 9);
  EXPECT_GE(timing.least(), 3e-3);
  EXPECT_LT(timing.median(), 50e-3);
  EXPECT_NE(timing.text().find("half of 7 rounds within"), std::string::npos) << timing.text();
}

TEST(Time, HasMedianAndSpread) {
  const Timing timing{{4, 1, 2, 3, 100}};
  EXPECT_EQ(timing.median(), 3);
  EXPECT_EQ(timing.least(), 1);
  EXPECT_DOUBLE_EQ(timing.spread(), 1.0 / 3);
}

TEST(Time, TakesFunctionsWithTheirArguments) {
  const Function twice =
      compile(lang::kernel("twice",
                           [] {
                             using namespace lang;
                             lang::Tensor x = inout("x", {64}, f32);
                             grid(1, [&](Index) { parallel(64, [&](Index i) { x(i) *= 2; }); });
                           }),
              Target::interpreter());
  const Tensor x = Tensor::full({64}, f32, 0);
  EXPECT_GE(time(twice, x).seconds.size(), 5U);
}

TEST(Time, RefusesANegativeNumberOfRounds) {
  try {
    time([] {}, Device::cpu(), {.rounds = -1});
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "time: -1 rounds; give a positive number, or 0 for as many as take a third of a second");
  }
}

}  // namespace
}  // namespace tegula
