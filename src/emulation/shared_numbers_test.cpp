// Numbers of groups of neighbours, found by a division: loaded once for those that a thread has in registers,
// with equal results wherever groups and tensors end.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace shared_numbers_test {

using namespace lang;
using Data = tegula::Tensor;

struct SharedCase {
  const char* name;
  int group;
  Expr (*group_of)(const Expr& step, const Expr& j, int group);
  bool once = true;  // a load stands in front of the elements
};

void PrintTo(const SharedCase& c, std::ostream* out) { *out << c.name; }

constexpr int rows = 4, columns = 512;

// Sums of rows of x, times the numbers of their groups.
lang::Kernel weighed(const SharedCase& c) {
  return kernel("weighed", [&] {
    Dim N("N"), K("K"), G("G");
    lang::Tensor x = input("x", {N, K}, f32), scale = input("scale", {N, G}, f16),
                 zero = input("zero", {N, G}, f16), out = output("out", {N}, f32);
    grid(ceildiv(N, rows), {.threads = 128}, [&](Index by) {
      Fragment sums({rows, columns}, f32, 0);
      serial(ceildiv(K, columns), [&](Index step) {
        Fragment own = load(x.at(by * rows, step * columns), {rows, columns});
        parallel(sums, [&](Index i, Index j) {
          Expr g = c.group_of(step, j, c.group);
          sums(i, j) += (own(i, j) - zero(by * rows + i, g)) * scale(by * rows + i, g);
        });
      });
      lang::copy(reduce_sum(sums), out.at(by * rows));
    });
  });
}

const SharedCase shared_cases[] = {
    {"divided", 16, [](const Expr& s, const Expr& j, int group) { return (s * columns + j) / group; }},
    {"by_steps", 16,
     [](const Expr& s, const Expr& j, int group) { return s * (columns / group) + floordiv(j, group); }},
    {"shifted", 16, [](const Expr& s, const Expr& j, int) { return (s * columns + j) >> 4; }},
    {"small_groups", 2, [](const Expr& s, const Expr& j, int group) { return (s * columns + j) / group; }},
    {"odd_groups", 3, [](const Expr& s, const Expr& j, int group) { return (s * columns + j) / group; },
     false},
};

class SharedNumbers : public ::testing::TestWithParam<SharedCase> {};

TEST_P(SharedNumbers, AreLoadedOnceForNeighbours) {
  const SharedCase& c = GetParam();
  const Watchdog watchdog(c.name, std::chrono::seconds(60));
  const lang::Kernel program = weighed(c);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  const auto load = text.find("tg::load(scale_"), sum = text.rfind("for (int e = 0;", load);
  const auto group = text.rfind("for (int g = 0;", load);
  const bool is_in_front = group != std::string::npos && (sum == std::string::npos || sum < group);
  EXPECT_EQ(is_in_front, c.once) << text;
  for (const int n : {1, 4, 7})
    for (const int k : {0, 1, 512, 1000}) {
      const int groups = (k + c.group - 1) / c.group;
      expect_as_interpreted(program,
                            {Data::random_normal({n, k}, f32, 1), Data::random_normal({n, groups}, f16, 2),
                             Data::random_normal({n, groups}, f16, 3)},
                            {n}, 1e-3, {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
    }
}

INSTANTIATE_TEST_SUITE_P(Table, SharedNumbers, ::testing::ValuesIn(shared_cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace shared_numbers_test
}  // namespace tegula::emulation
