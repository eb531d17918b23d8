#include "cuda/companion.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/testing/fake_driver.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/ops.hpp"

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

// On a GPU: 32 blocks of a pass over 64 chunks leave processors idle, so factors of later stretches are
// formed meanwhile. Packed sequences have no stretches, and the same numbers.
TEST(Companion, StretchesOfTheDeltaRuleChangeNoBit) {
  if (!is_driver_usable()) GTEST_SKIP() << "there is no CUDA device";
  const Watchdog watchdog("the delta rule in stretches", std::chrono::seconds(60));
  constexpr std::int64_t tokens = 4096, heads = 32, d = 64;
  const auto random = [](const Shape& shape, std::uint64_t seed, double low, double high) {
    return Tensor::random_uniform(shape, f32, seed, low, high);
  };
  const auto there = [](const Tensor& tensor, DType type) { return tensor.to(type).to(Device::cuda()); };
  const Tensor q = there(random({1, tokens, heads / 2, d}, 1, -1, 1), bf16),
               k = there(random({1, tokens, heads / 2, d}, 2, -.2, .2), bf16),
               v = there(random({1, tokens, heads, d}, 3, -1, 1), bf16),
               beta = there(random({1, tokens, heads}, 4, 0, 1), f32),
               g = there(random({1, tokens, heads}, 5, -.2, 0), f32),
               start = there(random({1, heads, d, d}, 6, -1, 1), f32);
  ops::GatedDeltaRule options{.g = g, .initial_state = start, .output_final_state = true};
  const auto whole = ops::gated_delta_rule(q, k, v, beta, options);
  const std::vector<std::int32_t> fences{0, tokens};
  const Tensor ends = Tensor::from(fences, {2}).to(Device::cuda());
  const auto rows = [](const Tensor& x) {
    Shape shape = x.shape();
    shape.erase(shape.begin());
    return x.ref().reshape(shape);
  };
  options.g = rows(g), options.cu_seqlens = ends;
  const auto packed = ops::gated_delta_rule(rows(q), rows(k), rows(v), rows(beta), options);
  synchronize();
  EXPECT_EQ(whole.out.values<double>(), packed.out.values<double>());
  EXPECT_EQ(whole.final_state.values<double>(), packed.final_state.values<double>());
}

}  // namespace companion_test
}  // namespace tegula::cuda
