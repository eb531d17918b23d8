#include "tegula/reduce.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "reduce/edits.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace reduce_test {

constexpr std::chrono::seconds most_time{100};

// Much that has nothing to do with the square root.
lang::Kernel large() {
  using namespace lang;
  return kernel("large", [] {
    Dim n("n");
    lang::Tensor x = input("x", {n}, f32), y = output("y", {n}, f32);
    grid(ceildiv(n, 64), [&](Index block) {
      Fragment f = load(x.at(block * 64), {64}), g({64}, f32, 0);
      serial(4, [&](Index i) { parallel(g, [&](Index j) { g(j) += f(j) * f32(i); }); });
      parallel(f, [&](Index i) {
        Expr a = f(i) * 2, b = sqrt(a) + 1;
        f(i) = select(b > 0, b, a);
      });
      Fragment total = reduce_max(g);
      copy(f, y.at(block * 64));
    });
  });
}

bool has_root(const lang::Kernel& kernel) { return kernel.text().find("sqrt") != std::string::npos; }

TEST(Reduce, KeepsWhatFailsAndDropsTheRest) {
  const Watchdog watchdog("reducing", most_time);
  const lang::Kernel small = reduce(large(), has_root);
  EXPECT_TRUE(has_root(small));
  EXPECT_LE(reduce_kernels::count_statements(*small.ir()), 4) << small.text();
  EXPECT_EQ(small.text().find("reduce_max"), std::string::npos) << small.text();
}

TEST(Reduce, FollowsCrashes) {
  const Watchdog watchdog("reducing", most_time);
  const auto crashes = [](const lang::Kernel& kernel) {
    if (has_root(kernel)) std::raise(SIGILL);
    return false;
  };
  EXPECT_TRUE(has_root(reduce(large(), crashes)));
}

TEST(Reduce, RefusesKernelsThatAreRight) {
  const Tensor x = Tensor::full({64}, f32, 2), y = Tensor::zeros({64}, f32);
  EXPECT_THROW(reduce(large(), Target::cpu(), {x, y}), ArgumentError);
  EXPECT_THROW(reduce(large(), Target::cuda(), {x, y}), ArgumentError);
}

}  // namespace reduce_test
}  // namespace tegula
