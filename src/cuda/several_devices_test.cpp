// Two GPUs in one process: calls in turns, from two threads, by graphs; and sums in order, whose words each
// device has for itself.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/memory.hpp"
#include "ops/reference/reference.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/error.hpp"
#include "tegula/ops.hpp"
#include "tegula/stream.hpp"

namespace tegula::cuda {
namespace several_devices_test {

constexpr std::chrono::seconds most_time{60};

class SeveralDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_driver_usable() || cuda_device_count() < 2)
      GTEST_SKIP() << "this machine has no two CUDA devices";
  }

  static Tensor random(std::uint64_t seed) { return Tensor::random_normal({1, 700, 2, 128}, bf16, seed); }
};

struct Gradients {
  std::vector<double> out, dq;
  bool operator==(const Gradients&) const = default;
};

// Inputs of seed, seed + 1, …; the sums of dq are formed in order.
Gradients gradients_on(const Device& device, const std::vector<Tensor>& in) {
  std::vector<Tensor> there;
  for (const Tensor& tensor : in) there.push_back(tensor.to(device));
  const ops::AttentionOptions options{.causal = true};
  const ops::AttentionResult forward = ops::attention(there[0], there[1], there[2], options);
  const auto gradients =
      ops::attention_backward(there[3], there[0], there[1], there[2], forward.out, forward.lse, options);
  synchronize(device);
  EXPECT_EQ(gradients.dq.device(), device);
  return {forward.out.values<double>(), gradients.dq.values<double>()};
}

TEST_F(SeveralDevices, TakeTurnsInOneThread) {
  const Watchdog watchdog("two devices in turns", most_time);
  const PoisonedAllocations poisoned;
  const std::vector<Tensor> in{random(1), random(2), random(3), random(4)};
  const auto exact = ops::reference::attention(in[0], in[1], in[2], {.causal = true});
  const Gradients first = gradients_on(Device::cuda(0), in);
  const std::vector<double> expected = exact.out.values<double>();
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(first.out[i], expected[i], 2e-2);
  for (int round = 0; round < 3; ++round)
    for (int device : {1, 0}) EXPECT_EQ(gradients_on(Device::cuda(device), in), first);
}

TEST_F(SeveralDevices, WorkForTwoThreads) {
  const Watchdog watchdog("two devices at a time", most_time);
  const std::vector<Tensor> in{random(5), random(6), random(7), random(8)};
  const Gradients expected = gradients_on(Device::cuda(0), in);
  std::vector<std::thread> threads;
  std::vector<Gradients> results(4);
  for (std::size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 8; ++round) {
        const Device device = Device::cuda(static_cast<int>(t % 2));
        const StreamScope own(Stream::create(device));
        results[t] = gradients_on(device, in);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Gradients& result : results) EXPECT_EQ(result, expected);
}

TEST_F(SeveralDevices, HaveGraphsOfTheirOwn) {
  const Watchdog watchdog("graphs of two devices", most_time);
  const Tensor q = random(9), k = random(10), v = random(11);
  const Tensor expected =
      ops::attention(q.to(Device::cuda(0)), k.to(Device::cuda(0)), v.to(Device::cuda(0))).out;
  synchronize();
  for (int number : {0, 1}) {
    const Device device = Device::cuda(number);
    const Tensor q_there = q.to(device), k_there = k.to(device), v_there = v.to(device);
    const Tensor out = Tensor::zeros(q.shape(), bf16, device), lse = Tensor::zeros({1, 2, 700}, f32, device);
    const Stream stream = Stream::create(device);
    const StreamScope scope(stream);
    const auto call = [&] {
      ops::attention(q_there, k_there, v_there, {.out = out.ref(), .lse = lse.ref()});
    };
    call();
    const Graph graph = Graph::capture(stream, call);
    stream.synchronize();
    tegula::copy_elements(Tensor::full(q.shape(), bf16, std::nan("")), out.ref());
    synchronize(device);
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(out.values<double>(), expected.values<double>());
  }
}

TEST_F(SeveralDevices, AreNotMixedInOneCall) {
  const Tensor here = random(12).to(Device::cuda(0)), there = random(13).to(Device::cuda(1));
  EXPECT_THROW(ops::attention(here, there, there), ArgumentError);
  EXPECT_THROW(ops::attention(here, here, here, {.out = there.ref()}), ArgumentError);
}

}  // namespace
}  // namespace tegula::cuda
