// Compiled kernels are called by order and by name, from any thread.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/execution/checked.hpp"
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
  f(x, 0, results[0]);  // loads a profiler's functions, in code that the thread sanitizer does not see
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

// An executable that writes what it is told, whatever the kernel says.
class Told : public tegula::Executable {
 public:
  explicit Told(float value) : value_(value) {}
  void run(const tegula::Binding& binding) const override {
    for (std::int64_t i = 0; i < binding.tensors[1].size(0); ++i) binding.tensors[1].at<float>(i) = value_;
  }

 private:
  float value_;
};

TEST(Check, ComparesTheFirstCallWithTheInterpreter) {
  const lang::Kernel kernel = lang::kernel("three", [] {
    lang::Dim N("N");
    lang::Tensor X = lang::input("X", {N}, f32), Y = lang::output("Y", {N}, f32);
    lang::grid(N, [&](lang::Index i) { Y(i) = X(i) * 3; });
  });
  const auto signature = std::make_shared<const tegula::Signature>(kernel.ir());
  const Tensor x = Tensor::full({4}, f32, 1), y = Tensor::zeros({4}, f32);
  const tegula::Argument arguments[] = {x, y};
  const auto run = [&](const char* asked, float value) {
    const tegula::ScopedVariable variable(tegula::Variable::check, asked);
    const auto made = checked_if_asked(signature, Target::cpu(), std::make_unique<Told>(value));
    made->run(signature->bind(std::span(arguments)));
    made->run(signature->bind(std::span(arguments)));
  };
  testing::internal::CaptureStderr();
  run("1", 3.00001f);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tegula: TEGULA_CHECK: kernel 'three' on cpu agrees with the interpreter\n");
  EXPECT_ERROR(tegula::InternalError, "kernel 'three' on cpu and the interpreter write different values to 'Y'", run("1", 3.1f));
  run("0", 5);
  EXPECT_EQ(y.at<float>(3), 5);
  EXPECT_ERROR(tegula::ArgumentError, "TEGULA_CHECK=2", run("2", 3));
}

// A mistake of the program is found before anything is written; a tensor that is read and written is copied first.
TEST(Check, FindsMistakesAndUpdatesOnce) {
  const tegula::ScopedVariable variable(tegula::Variable::check, "1");
  const Function wrong = compile(lang::kernel("wrong", [] {
                                   lang::Tensor Y = lang::output("Y", {4}, f32);
                                   lang::grid(1, [&](lang::Index) {
                                     lang::Shared s({4}, f32);
                                     lang::parallel(s, [&](lang::Index i) { Y(i) = s(i); });
                                   });
                                 }),
                                 Target::cpu());
  const Tensor y = Tensor::full({4}, f32, 7);
  EXPECT_ERROR(tegula::ProgramError, "s", wrong(y));
  EXPECT_EQ(y.at<float>(0), 7);
  const Function more = compile(lang::kernel("more", [] {
                                  lang::Tensor Y = lang::inout("Y", {4}, f32);
                                  lang::grid(4, [&](lang::Index i) { Y(i) = Y(i) + 1; });
                                }),
                                Target::cpu());
  more(y);
  EXPECT_EQ(y.at<float>(0), 8);
}

}  // namespace
