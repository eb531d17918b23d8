// What a kernel reports on the CPU executor, how it fails, and calls at the same time.
#include <algorithm>
#include <sstream>
#include <thread>

#include "codegen/testing/compare.hpp"
#include "ir/visit.hpp"
#include "runtime/testing/expect_error.hpp"

namespace tegula::codegen {
namespace calls_test {

using namespace lang;
using lang::Tensor, tegula::Target;

// The lines that a call prints, in their order.
std::vector<std::string> printed(const Kernel& kernel, Target target, const std::vector<Argument>& args) {
  const Function function = compile(kernel, target);
  testing::internal::CaptureStdout();
  function.call_in_order(args);
  std::istringstream text(testing::internal::GetCapturedStdout());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(CpuCalls, PrintTheSameText) {
  const Kernel kernel = lang::kernel("prints", [] {
    Tensor X = input("X", {6}, f32), D = input("D", {6}, f64), L = input("L", {2}, i64);
    Expr limit = scalar("i", i32);
    grid(1, [&](Index b) {
      serial(6, [&](Index i) {
        print("x", X(i));
        print("d", D(i) * 3);
        when(i > limit, [&] { print("above", i); }).otherwise([&] { print("below", X(i) > 0); });
      });
      Fragment x = load(X, {6});
      print("sum", reduce_sum(x).scalar());
      print("large", L(0));
      print("small", L(1));
      print("natural", u32(X(1)) - 2u);
      print("half", bf16(X(2)));
      Var v = b + 5;
      print("variable", v);
    });
  });
  const std::vector<Argument> args{Data::from<float>({0.1f, 1, -2.625f, HUGE_VALF, std::nanf(""), 1e-30f}),
                                   Data::from<double>({0.1, 1.0 / 3, 1e300, -0.0, 5, 1e-300}),
                                   Data::from<std::int64_t>({INT64_MAX, INT64_MIN}), 2};
  const auto expected = printed(kernel, Target::interpreter(), args);
  EXPECT_EQ(expected.size(), 24u);
  EXPECT_EQ(printed(kernel, Target::cpu(), args), expected);
}

TEST(CpuCalls, PrintFromEveryBlockAndIteration) {
  const Kernel kernel = lang::kernel("prints_often", [] {
    Tensor X = input("X", {5, 3, 20}, i32);
    grid(5, 3, [&](Index b, Index c) {
      print("block", b * 3 + c);
      parallel(20, [&](Index i) { when(X(b, c, i) > 7, [&] { print("large", X(b, c, i)); }); });
      parallel(2, 2, [&](Index i, Index j) { print("first", i * 2 + j); });
      parallel(2, 2, [&](Index i, Index j) { print("second", i * 2 + j); });
    });
    grid(2, [&](Index b) { print("again", b); });
  });
  const std::vector<Argument> args{Data::random_integers({5, 3, 20}, i32, 1, -9, 10)};
  auto expected = printed(kernel, Target::interpreter(), args), actual = printed(kernel, Target::cpu(), args);
  // Blocks and iterations run in any order.
  std::sort(expected.begin(), expected.end());
  std::sort(actual.begin(), actual.end());
  EXPECT_GT(expected.size(), 140u);
  EXPECT_EQ(actual, expected);
}

// One block at most fails, so that both executors meet the same one.
const Kernel asserting = lang::kernel("asserts", [] {
  Tensor X = input("X", {4, 20}, i32), Y = output("Y", {4}, i32);
  grid(2, 2, [&](Index b, Index c) {
    Expr row = b * 2 + c;
    assert_that(X(row, 0) != 100, "the first is not a hundred");
    parallel(20, [&](Index i) { assert_that(X(row, i) < 101, "none is larger"); });
    serial(3, [&](Index i) { when(i == 1, [&] { assert_that(X(row, 19) != 55, "the last is not 55"); }); });
    Y(row) = X(row, 0);
  });
});

std::string failure(const Function& function, const Data& x) {
  try {
    function(x, Data::zeros({4}, i32));
  } catch (const ProgramError& error) { return error.what(); }
  return "";
}

TEST(CpuCalls, AssertionsFailWithTheSameMessage) {
  const Function cpu = compile(asserting, Target::cpu()),
                 interpreter = compile(asserting, Target::interpreter());
  const auto with = [](std::int64_t row, std::int64_t column, double value) {
    Data x = Data::zeros({4, 20}, i32);
    x.set({row, column}, value);
    return x;
  };
  for (const Data& x : {with(2, 0, 100), with(1, 7, 200), with(3, 19, 55)}) {
    const std::string expected = failure(interpreter, x), actual = failure(cpu, x);
    EXPECT_NE(expected, "");
    EXPECT_EQ(actual, expected);
    EXPECT_EQ(failure(cpu, with(0, 0, 1)), "") << "a call after one that failed";
  }
}

// Adds the sum of all elements to each, by way of workspaces.
Kernel with_workspaces() {
  return lang::kernel("same_time", [] {
    Dim N("N");
    Tensor X = input("X", {N}, f32), Y = output("Y", {N}, f32), W = workspace("W", {N}, f32),
           S = workspace("S", {1}, f32, {.zero = true});
    grid(ceildiv(N, 16), [&](Index b) {
      Fragment x = load(X.at(b * 16), {16});
      Fragment sum = reduce_sum(x);
      atomic_add(S(0), sum.scalar());
      copy(x, W.at(b * 16));
    });
    grid(ceildiv(N, 16), [&](Index b) {
      Fragment w = load(W.at(b * 16), {16});
      Expr total = S(0);
      parallel(16, [&](Index i) { w(i) += total; });
      copy(w, Y.at(b * 16));
    });
  });
}

Kernel with_tile(int rows) {
  return lang::kernel("with_tile", [&] {
    Tensor X = input("X", {8, 256}, f32), Y = output("Y", {8, 256}, f32);
    grid(1, [&](Index) {
      Shared s({rows, 256}, f32);
      copy(X, s);
      copy(s, Y);
    });
  });
}

TEST(CpuCalls, NoteTilesThatLeaveTheCache) {
  const int rows_of_cache = static_cast<int>(l2_bytes() / 1024);
  EXPECT_TRUE(compile(with_tile(8), Target::cpu()).notes().empty());
  EXPECT_TRUE(compile(with_tile(rows_of_cache), Target::interpreter()).notes().empty());
  const auto notes = compile(with_tile(rows_of_cache), Target::cpu()).notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("half of the"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("calls_test.cpp"), std::string::npos) << notes[0];
  const Kernel huge = lang::kernel("huge", [&] {
    Tensor Y = output("Y", {1}, f64);
    grid(1, [&](Index) {
      Shared a({1 << 18, 256}, f64), b({1 << 18, 256}, f64), c({1 << 18, 256}, f64);
      Y(0) = a(0, 0) + b(0, 0) + c(0, 0);
    });
  });
  EXPECT_ERROR(ProgramError, "MiB are allowed", compile(huge, Target::cpu()));
}

// The IR lets a copy leave out what elements outside the tensor read as; programs always name it.
TEST(CpuCalls, CopiesWithoutAFillReadZeros) {
  const Kernel named = kernel("clipped", [] {
    Tensor X = input("X", {3}, f32), Y = output("Y", {5}, f32);
    grid(1, [&](Index) {
      Fragment x({5}, f32);
      copy(X, x, {.fill = 7});
      copy(x, Y);
    });
  });
  const auto without =
      std::make_shared<const ir::Kernel>(ir::map_grids(*named.ir(), [](const ir::Grid& grid) {
        return ir::map_body(grid.body, [](const ir::Stmt& stmt) -> ir::Body {
          const auto* copy = ir::as<ir::Copy>(stmt);
          if (copy == nullptr) return {stmt};
          return {ir::statement(ir::Copy{copy->from, copy->to, nullptr}, stmt->at)};
        });
      }));
  const Data x = Data::full({3}, f32, 2);
  for (const Target target : {Target::interpreter(), Target::cpu()}) {
    const Data y = Data::full({5}, f32, 9);
    compile(without, target)(x, y);
    EXPECT_EQ(y.values<float>(), (std::vector<float>{2, 2, 2, 0, 0})) << target.name();
  }
}

TEST(CpuCalls, RunAtTheSameTime) {
  const Function function = compile(with_workspaces(), Target::cpu());
  const Data first = Data::full({3}, f32, 1), ignored = Data::zeros({3}, f32);
  function(first, ignored);  // loads a profiler's functions, in code that the thread sanitizer does not see
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        const std::int64_t n = 30 + 100 * t + round;
        const Data x = Data::full({n}, f32, t), y = Data::zeros({n}, f32);
        function(x, y);
        EXPECT_TRUE(equal(y, Data::full({n}, f32, static_cast<double>(t * (n + 1)))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace calls_test
}  // namespace tegula::codegen
