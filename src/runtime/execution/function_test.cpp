// Compiled kernels are called by order and by name, from any thread.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace {

namespace lang = tegula::lang;
using tegula::compile, tegula::f32, tegula::Function, tegula::Target, tegula::Tensor;

Function scale() {
  return compile(lang::kernel("scale",
                              [] {
                                lang::Dim N("N");
                                lang::Tensor X = lang::input("X", {N}, f32);
                                lang::Expr factor = lang::scalar("factor", f32);
                                lang::Tensor W = lang::workspace("W", {N}, f32);
                                lang::Tensor Y = lang::output("Y", {N}, f32);
                                lang::grid(N, [&](lang::Index i) { W(i) = X(i) * factor; });
                                lang::grid(N, [&](lang::Index i) { Y(i) = W(i); });
                              }),
                 Target::interpreter());
}

TEST(Function, IsCalledByOrderAndByName) {
  const Function f = scale();
  EXPECT_EQ(f.name(), "scale");
  EXPECT_EQ(f.target(), Target::interpreter());
  const Tensor x = Tensor::arange(5, f32), y = Tensor::zeros({5}, f32);
  f(x, 2.0, y);
  EXPECT_EQ(y.at<float>(4), 8);
  f.call({{"Y", y}, {"X", x}, {"factor", 3}});
  EXPECT_EQ(y.at<float>(4), 12);
  EXPECT_EQ(f.workspace_bytes(x, 1, y), 64u);
  EXPECT_ERROR(tegula::ArgumentError, "takes 3 arguments, but 2", f(x, y));
}

TEST(Function, RunsInSeveralThreadsAtOnce) {
  const Function f = scale();
  const Tensor x = Tensor::arange(300, f32);
  std::vector<Tensor> results;
  for (int t = 0; t < 4; ++t) results.push_back(Tensor::zeros({300}, f32));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) f(x, t, results[static_cast<std::size_t>(t)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) EXPECT_EQ(results[static_cast<std::size_t>(t)].at<float>(299), 299.0f * t);
}

// What CPU and GPU compute silently: an element outside of a tile, and a race.
TEST(Function, TargetOfTheEnvironmentFindsWhatIsComputedSilently) {
  const lang::Kernel outside = lang::kernel("outside", [] {
    lang::Tensor Y = lang::output("Y", {4}, f32);
    lang::grid(1, [&](lang::Index) {
      lang::Shared tile({4}, f32);
      lang::parallel(4, [&](lang::Index i) { tile(i) = 1; });
      lang::parallel(4, [&](lang::Index i) { Y(i) = tile(i + 1); });
    });
  });
  const lang::Kernel race = lang::kernel("race", [] {
    lang::Tensor Y = lang::output("Y", {1}, f32);
    lang::grid(3, [&](lang::Index i) { Y(0) = lang::f32(i); });
  });
  const tegula::ScopedVariable variable(tegula::Variable::target, "interpreter");
  const Tensor four = Tensor::zeros({4}, f32), one = Tensor::zeros({1}, f32);
  const Function checked = compile(outside);
  EXPECT_EQ(checked.target(), Target::interpreter());
  EXPECT_ERROR(tegula::ProgramError, "function_test.cpp", checked(four));
  EXPECT_ERROR(tegula::ProgramError, "function_test.cpp", compile(race)(one));
  EXPECT_EQ(compile(race, Target::interpreter()).target(), Target::interpreter());
}

TEST(Function, TargetOfTheEnvironmentMustExist) {
  const tegula::ScopedVariable variable(tegula::Variable::target, "gpu");
  EXPECT_ERROR(tegula::ArgumentError, "TEGULA_TARGET=gpu", compile(lang::kernel("empty", [] {
                 lang::Tensor Y = lang::output("Y", {1}, f32);
                 lang::grid(1, [&](lang::Index) { Y(0) = 1; });
               })));
}

}  // namespace
