#include "cuda/companion.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/testing/fake_driver.hpp"

namespace tegula::cuda {
namespace companion_test {

using testing::FakeDriver;

std::string number(const Stream& stream) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(stream.handle()));
}

class FakeCompanion : public ::testing::Test {
 protected:
  FakeDriver fake_;
  ScopedDriver scope_{fake_.driver()};
};

TEST_F(FakeCompanion, WaitsAndIsWaitedFor) {
  const Stream stream = Stream::create();
  const Companion companion(stream);
  const std::string own = number(stream), other = number(companion.stream());
  EXPECT_NE(own, other);
  fake_.calls();
  companion.fork();
  EXPECT_EQ(fake_.calls(), (std::vector<std::string>{"record stream " + own, "wait stream " + other}));
  companion.join();
  EXPECT_EQ(fake_.calls(), (std::vector<std::string>{"record stream " + other, "wait stream " + own}));
}

TEST_F(FakeCompanion, IsTheSameForAllCallsOfAStream) {
  const Stream a = Stream::create(), b = Stream::create();
  EXPECT_EQ(Companion(a).stream().handle(), Companion(a).stream().handle());
  EXPECT_NE(Companion(a).stream().handle(), Companion(b).stream().handle());
}

}  // namespace companion_test
}  // namespace tegula::cuda
