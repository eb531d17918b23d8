// Grids of a call that run side by side, on a device: whoever comes later finds what all before have
// written.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/driver.hpp"
#include "cuda/memory.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"
#include "tegula/stream.hpp"
#include "tegula/tensor.hpp"

namespace tegula::cuda {
namespace grids_test {

constexpr std::chrono::seconds most_time{60};
constexpr int steps = 400, rows = 64, width = 128;

class GridsSideBySide : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  }
};

// to = from + steps, for long: one element after the other depends on the last.
void slow_copy(const lang::Tensor& from, const lang::Tensor& to) {
  using namespace lang;
  grid(ceildiv(from.extent(0), rows), [&](Index x) {
    Fragment tile = load(from.at(x * rows, 0), {rows, width});
    serial(steps, [&](Index) { parallel(tile, [&](Index i, Index j) { tile(i, j) += 1; }); });
    copy(tile, to.at(x * rows, 0));
  });
}

// second = first + steps + 1, third = 2 · first; `last` blocks of the second grid have something to do.
lang::Kernel side_by_side() {
  using namespace lang;
  return kernel("side_by_side", [] {
    Dim n("n");
    lang::Tensor first = input("first", {n, width}, f32), slow = workspace("slow", {n, width}, f32),
                 second = output("second", {n, width}, f32), third = output("third", {n, width}, f32);
    Expr last = scalar("last", i32);
    slow_copy(first, slow);
    grid(ceildiv(n, rows), [&](Index x) {  // shares nothing that is written: runs beside
      exit_if(x >= last);
      Fragment tile = load(first.at(x * rows, 0), {rows, width});
      parallel(tile, [&](Index i, Index j) { tile(i, j) *= 2; });
      copy(tile, third.at(x * rows, 0));
    });
    grid(ceildiv(n, rows), [&](Index x) {  // its neighbour may be over before the first grid
      Fragment tile = load(slow.at(x * rows, 0), {rows, width});
      parallel(tile, [&](Index i, Index j) { tile(i, j) += 1; });
      copy(tile, second.at(x * rows, 0));
    });
  });
}

void expect_rows(const std::vector<float>& first, const Tensor& second, const Tensor& third, int last) {
  const std::vector<float> behind = second.to(Device::cpu()).values<float>(),
                           beside = third.to(Device::cpu()).values<float>();
  for (std::size_t i = 0; i < first.size(); i += 97) {
    float slow = first[i];
    for (int step = 0; step <= steps; ++step) slow += 1;
    ASSERT_EQ(behind[i], slow) << last << " blocks, element " << i;
    if (i / (std::size_t{rows} * width) < static_cast<std::size_t>(last)) {
      ASSERT_EQ(beside[i], 2 * first[i]) << last << " blocks, element " << i;
    }
  }
}

// Inputs change between calls, so that no cache of a processor may keep them.
TEST_F(GridsSideBySide, LeaveNothingUnfinished) {
  const Watchdog watchdog("grids side by side", most_time);
  const PoisonedAllocations poisoned;
  const auto function = compile(side_by_side(), Target::cuda());
  for (const std::int64_t n : {64, 64 * 131, 64 * 132, 64 * 700, 64 * 3000}) {
    SCOPED_TRACE(n);
    const Tensor sources[] = {Tensor::random_normal({n, width}, f32, 1).to(Device::cuda()),
                              Tensor::random_normal({n, width}, f32, 2).to(Device::cuda())};
    const std::vector<float> latest = sources[1].to(Device::cpu()).values<float>();
    const Tensor first = Tensor::empty({n, width}, f32, Device::cuda()),
                 second = Tensor::empty({n, width}, f32, Device::cuda()),
                 third = Tensor::empty({n, width}, f32, Device::cuda());
    for (const int last : {0, 1, static_cast<int>(n / rows)}) {
      for (int round = 0; round < 4; ++round) {
        tegula::copy_elements(sources[round % 2], first);
        function(first, second, third, last);
      }
      synchronize(Device::cuda());
      expect_rows(latest, second, third, last);
    }
  }
}

}  // namespace
}  // namespace tegula::cuda
