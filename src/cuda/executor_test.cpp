// What the host does for calls, on a fake driver, with code that NVRTC compiles where it is found.
#include "cuda/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "cuda/gpu.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/reports.hpp"
#include "cuda/testing/fake_driver.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula {
namespace executor_test {

using cuda::testing::FakeDriver;

// Y = X · factor through a workspace, over blocks of 4 elements; Z is cleared.
lang::Kernel scale(const std::string& name = "scale") {
  return lang::kernel(name, [] {
    lang::Dim N("N");
    lang::Tensor X = lang::input("X", {N}, f32);
    lang::Expr factor = lang::scalar("factor", f32);
    lang::Tensor W = lang::workspace("W", {N}, f32);
    lang::Tensor Y = lang::output("Y", {N}, f32);
    lang::grid(N, [&](lang::Index i) { W(i) = X(i) * factor; });
    lang::grid(N, [&](lang::Index i) {
      lang::assert_that(W(i) < 100, "elements are below 100");
      Y(i) = W(i);
    });
  });
}

class CudaCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::find_nvrtc()) GTEST_SKIP() << "NVRTC was not found on this machine";
    function_.emplace(compile(scale(), Target::cuda()));
    fake_.calls();
  }
  std::vector<std::string> launches() const {
    std::vector<std::string> result = fake_.calls();
    std::erase_if(result, [](const std::string& line) { return line.rfind("launch", 0) != 0; });
    return result;
  }
  Tensor on_device(std::int64_t count) const { return Tensor::zeros({count}, f32, Device::cuda()); }

  FakeDriver fake_;
  cuda::ScopedDriver scope_{fake_.driver()};
  std::optional<Function> function_;
};

TEST_F(CudaCalls, LaunchEachGridWithTheArguments) {
  const Tensor x = on_device(6), y = on_device(6);
  fake_.keep_words(9);
  (*function_)(x, 2.0, y);
  const std::vector<std::string> made = launches();
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].substr(0, 19), "launch grid 6 block");
  EXPECT_FALSE(made[0].ends_with(" early")) << "what stands before the call may not wait for itself";
  EXPECT_TRUE(made[1].ends_with(" early"));
  const std::vector<std::uint64_t> words = fake_.words();
  const auto address = [](const void* data) { return reinterpret_cast<std::uint64_t>(data); };
  EXPECT_EQ(words[0], address(x.data()));
  EXPECT_EQ(words[1], address(y.data()));
  EXPECT_EQ(words[2] % 256, 0u) << "the workspace";
  EXPECT_EQ(std::vector(words.begin() + 3, words.begin() + 7), (std::vector<std::uint64_t>{1, 1, 1, 6}));
  EXPECT_EQ(words[7], 0x40000000u) << "2 as f32";
  EXPECT_NE(words[8], 0u) << "where assertions are reported";
}

// A grid waits for the one before itself, which has waited for all earlier ones: not where that one is not
// there.
TEST_F(CudaCalls, WaitForAllBehindAGridWithoutBlocks) {
  const Function three =
      compile(lang::kernel("three",
                           [] {
                             lang::Dim N("N"), M("M");
                             lang::Tensor X = lang::input("X", {N}, f32), W = lang::workspace("W", {N}, f32),
                                          Y = lang::output("Y", {N}, f32), Z = lang::output("Z", {M}, f32);
                             lang::grid(N, [&](lang::Index i) { W(i) = X(i) + 1; });
                             lang::grid(M, [&](lang::Index i) { Z(i) = 2; });
                             lang::grid(N, [&](lang::Index i) { Y(i) = W(i); });
                           }),
              Target::cuda());
  for (const std::int64_t extent : {0, 3}) {
    const std::size_t before = launches().size();
    three(on_device(6), on_device(6), on_device(extent));
    const std::vector<std::string> made = launches();
    ASSERT_EQ(made.size() - before, extent > 0 ? 3u : 2u);
    EXPECT_EQ(made.back().ends_with(" early"), extent > 0) << extent;
  }
}

TEST(Modules, AreUnloadedByTheDriverThatLoadedThem) {
  if (!cuda::find_nvrtc()) GTEST_SKIP() << "NVRTC was not found on this machine";
  const FakeDriver fake;
  std::optional<Function> function;
  {
    const cuda::ScopedDriver scope(fake.driver());
    function.emplace(compile(scale(), Target::cuda()));
    const Tensor x = Tensor::zeros({6}, f32, Device::cuda()), y = Tensor::zeros({6}, f32, Device::cuda());
    (*function)(x, 2.0, y);
    fake.calls();
  }
  function.reset();
  const std::vector<std::string> calls = fake.calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "unload module"), 1);
}

// More values than a thread has registers, all of them used twice.
TEST(AssemblersRemarks, AreNotesOfTheFunction) {
  if (!cuda::find_nvrtc()) GTEST_SKIP() << "NVRTC was not found on this machine";
  const FakeDriver fake;
  const cuda::ScopedDriver scope(fake.driver());
  EXPECT_TRUE(compile(scale(), Target::cuda()).notes().empty());
  const lang::Kernel wide = lang::kernel("wide", [] {
    constexpr int threads = 1024, columns = 96 * threads;
    lang::Tensor X = lang::input("X", {1, columns}, f32), Y = lang::output("Y", {1, columns}, f32);
    lang::grid(1, {.threads = threads}, [&](lang::Index) {
      lang::Fragment x = lang::load(X.at(0, 0), {1, columns});
      const lang::Fragment most = lang::reduce_max(x);
      lang::parallel(x, [&](lang::Index i, lang::Index j) { x(i, j) -= most(i); });
      lang::copy(x, Y.at(0, 0));
    });
  });
  for (int i = 0; i < 2; ++i) {  // the second time from the cache
    const std::vector<std::string> notes = compile(wide, Target::cuda()).notes();
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const std::string& n) {
      return n.rfind("executor_test.cpp:", 0) == 0 && n.find(": spills: ") != n.npos;
    })) << ::testing::PrintToString(notes);
  }
}

TEST_F(CudaCalls, WithoutBlocksLaunchNothing) {
  (*function_)(on_device(0), 2.0, on_device(0));
  EXPECT_TRUE(launches().empty());
}

TEST_F(CudaCalls, GoToTheStreamThatIsNamed) {
  const Tensor x = on_device(6), y = on_device(6);
  const Stream stream = Stream::create(), other = Stream::create();
  const auto queue = [](const Stream& s) {
    return " stream " + std::to_string(reinterpret_cast<std::uintptr_t>(s.handle())) + " ";
  };
  function_->on(stream)(x, 2.0, y);
  EXPECT_NE(launches().at(0).find(queue(stream)), std::string::npos);
  const StreamScope scope(other);
  (*function_)(x, 2.0, y);
  EXPECT_NE(launches().at(0).find(queue(other)), std::string::npos);
  EXPECT_ERROR(ArgumentError, "the stream belongs to cuda:1, but the tensors are on cuda:0",
               function_->on(Stream::create(Device::cuda(1)))(x, 2.0, y));
  EXPECT_ERROR(ArgumentError, "has no streams", compile(scale(), Target::interpreter()).on(stream));
}

TEST_F(CudaCalls, RefuseTensorsThatLieElsewhere) {
  const Tensor there = on_device(6), host = Tensor::zeros({6}, f32);
  EXPECT_ERROR(ArgumentError, "argument 'X' is in host memory, but the kernel was compiled for CUDA",
               (*function_)(host, 2.0, there));
  EXPECT_ERROR(ArgumentError, "argument 'Y' is on cuda:1, but argument 'X' is on cuda:0",
               (*function_)(there, 2.0, Tensor::zeros({6}, f32, Device::cuda(1))));
  EXPECT_ERROR(ArgumentError, "is on cuda:0, but the kernel was compiled for the CPU",
               compile(scale(), Target::interpreter())(there, 2.0, host));
  (*function_)(Tensor::zeros({6}, f32, Device::cuda(1)), 2.0, Tensor::zeros({6}, f32, Device::cuda(1)));
  EXPECT_EQ(launches().size(), 2u) << "the same function serves another device";
}

TEST_F(CudaCalls, AreCapturedWithoutAllocationOrWaiting) {
  const Tensor x = on_device(6), y = on_device(6);
  const Stream stream = Stream::create();
  function_->on(stream)(x, 2.0, y);
  Graph::capture(stream, [&] { (*function_)(x, 2.0, y); });  // makes the graph's workspace
  const Graph graph = Graph::capture(stream, [&] {
    fake_.calls();
    (*function_)(x, 2.0, y);
    const std::vector<std::string> made = fake_.calls();
    EXPECT_EQ(made.size(), 2u);
    for (const std::string& call : made) EXPECT_EQ(call.substr(0, 6), "launch");
  });
  graph.launch(stream);
}

TEST_F(CudaCalls, ReportAssertionsWhenTheyAreWaitedFor) {
  const Tensor x = on_device(6), y = on_device(6);
  fake_.keep_words(9);
  (*function_)(x, 2.0, y);
  synchronize();
  FakeDriver::write(fake_.words()[8], std::uint64_t{4} << 32 | 1);
  EXPECT_ERROR(ProgramError, "assertion failed: elements are below 100 [kernel 'scale', block 4",
               synchronize());
  synchronize();
}

// Kernels of one call may all fail for one reason: who caught that has heard of all of them.
TEST_F(CudaCalls, ReportAssertionsOfAllKernelsTogether) {
  const Tensor x = on_device(6), y = on_device(6);
  const Function other = compile(scale("other"), Target::cuda());
  fake_.keep_words(9);
  for (const Function& function : {*function_, other}) {
    function(x, 2.0, y);
    FakeDriver::write(fake_.words()[8], std::uint64_t{4} << 32 | 1);
  }
  EXPECT_ERROR(
      ProgramError,
      "[kernel 'scale', block 4 of its launch]; assertion failed: elements are below 100 [kernel 'other'",
      synchronize());
  synchronize();
}

TEST_F(CudaCalls, NameTheFunctionThatFailed) {
  const Tensor x = on_device(6), y = on_device(6);
  fake_.fail_next("cuLaunchKernelEx", 700);
  EXPECT_ERROR(DeviceError, "cuLaunchKernelEx failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)",
               (*function_)(x, 2.0, y));
}

TEST_F(CudaCalls, ComeFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Stream stream = Stream::create();
      const StreamScope scope(stream);
      const Tensor x = on_device(6), y = on_device(6);
      for (int i = 0; i < 50; ++i) (*function_)(x, 2.0, y);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(launches().size(), 400u);
}

// What the library does itself, without what the driver takes for a launch.
TEST_F(CudaCalls, TakeMicroseconds) {
  const Tensor x = on_device(6), y = on_device(6);
  const auto time = [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) (*function_)(x, 2.0, y);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / 100;
  };
  double best = time();
  for (int i = 0; i < 20; ++i) best = std::min(best, time());
  std::cout << "a call of two grids: " << best << " us\n";
  EXPECT_LT(best, 50) << "far above what it takes, for machines that do other things meanwhile";
}

}  // namespace executor_test
}  // namespace tegula
