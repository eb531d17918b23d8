// Kernels on the CPU give the same results whatever the host's compiler optimises.
#include "runtime/execution/cpu_executor.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "runtime/execution/host_compiler.hpp"
#include "runtime/files/file_io.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "runtime/machine/environment.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace {

// Rows of 20 elements, which are whole vectors and single elements; f64 and f32.
template <class T>
void expect_one_rounding(DType type) {
  const lang::Kernel kernel = lang::kernel("rounded_once", [&] {
    lang::Tensor X = lang::input("X", {20}, type), Y = lang::output("Y", {20}, type);
    lang::Expr factor = lang::scalar("factor", type), summand = lang::scalar("summand", type);
    lang::grid(1, [&](lang::Index) {
      lang::parallel(20, [&](lang::Index i) { Y(i) = lang::fma(X(i) - summand, factor, summand); });
    });
  });
  Tensor x = Tensor::arange(20, type), y = Tensor::zeros({20}, type);
  const T factor = T(1) / 3, summand = T(2) / 7;
  compile(kernel, Target::cpu())(x, y, static_cast<double>(factor), static_cast<double>(summand));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(y.at<T>(i), std::fma(static_cast<T>(i) - summand, factor, summand)) << i;
}

TEST(CpuExecutor, RoundsOnceWhereTheCompilerDoesNotOptimise) {
  if (best_isa() == Isa::portable) GTEST_SKIP() << "no instruction rounds a product and a sum once";
  // The process keeps the first compiler that it finds.
  if (testing::UnitTest::GetInstance()->test_to_run_count() > 1)
    GTEST_SKIP() << "other tests need another compiler";
  const TemporaryDirectory directory;
  const std::string slow = directory.file("c++");
  std::ofstream(slow) << "#!/bin/sh\nexec c++ \"$@\" -O0\n";
  chmod(slow.c_str(), 0700);
  const ScopedVariable compiler(Variable::cxx, slow);
  const ScopedVariable cache(Variable::cache_dir, directory.file("cache"));
  expect_one_rounding<float>(f32);
  expect_one_rounding<double>(f64);
}

}  // namespace
}  // namespace tegula
