#include "cuda/companion.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/streams.hpp"
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

TEST_F(FakeCompanion, IsGivenUpForOthersUnlessACallHasIt) {
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < most_companions + 2; ++i) streams.push_back(Stream::create());
  const std::string first = number(Companion(streams[0]).stream());
  const Companion second(streams[1]);
  fake_.calls();
  for (const Stream& stream : streams) Companion{stream};
  const std::vector<std::string> calls = fake_.calls();
  const auto destroyed = [&](const std::string& own) {
    return std::count(calls.begin(), calls.end(), "destroy stream " + own);
  };
  EXPECT_EQ(destroyed(first), 1);
  EXPECT_EQ(destroyed(number(second.stream())), 0);
}

TEST_F(FakeCompanion, IsKeptDuringACapture) {
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < most_companions + 2; ++i) streams.push_back(Stream::create());
  const Stream own = Companion(streams[0]).stream();
  driver()(driver().StreamBeginCapture, handle_of(own), CaptureMode::relaxed);
  for (const Stream& stream : streams) Companion{stream};
  EXPECT_EQ(Companion(streams[0]).stream().handle(), own.handle());
  GraphHandle graph = nullptr;
  driver()(driver().StreamEndCapture, handle_of(own), &graph);
}

}  // namespace companion_test
}  // namespace tegula::cuda
