// What print() writes: the same lines from every executor, with the place of the block and of the iteration.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::codegen {
namespace printed_values_test {

// Lines in order of their text: iterations and blocks have none.
std::vector<std::string> lines_of(const lang::Kernel& kernel, tegula::Target target,
                                  const tegula::Tensor& x) {
  const tegula::Function function = tegula::compile(kernel, target);
  std::fflush(stdout);
  ::testing::internal::CaptureStdout();
  function(x);
  std::fflush(stdout);
  std::istringstream in(::testing::internal::GetCapturedStdout());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("[")) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(PrintedValues, AreTheSameFromEveryExecutor) {
  const lang::Kernel program = lang::kernel("prints", [] {
    using namespace lang;
    lang::Tensor x = input("x", {4, 8}, f32);
    grid(2, {.threads = 32}, [&](Index block) {
      Fragment f = load(x.at(block * 2), {2, 8});
      print("whole", f);
      Fragment sums = reduce_sum(f);
      parallel(sums, [&](Index i) { print("sum of 100 %", sums(i)); });
      print("is second", block == 1);
      print("count", block + 7);
    });
  });
  const tegula::Tensor x = tegula::Tensor::random_integers({4, 8}, f32, 1, -9, 10);
  const auto expected = lines_of(program, tegula::Target::interpreter(), x);
  ASSERT_EQ(expected.size(), 2U * (16 + 2 + 2));
  EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [](const std::string& line) {
    return line.starts_with("[block bx0 = 1; ") && line.find(" = 1, ") == std::string::npos;
  }));
  for (const tegula::Target target :
       {tegula::Target::cpu(), tegula::Target::emulated(), tegula::Target::emulated_sm90()})
    EXPECT_EQ(lines_of(program, target, x), expected) << target.name();
}

}  // namespace printed_values_test
}  // namespace tegula::codegen
