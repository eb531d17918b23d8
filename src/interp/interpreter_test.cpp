// What programs mean: small kernels with the values that they must give.
#include "interp/interpreter.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/testing/expect_error.hpp"
#include "tegula/lang.hpp"

namespace interpreter_test {

using namespace tegula::lang;
namespace tg = tegula;
using tg::Function, tg::compile;
using Data = tg::Tensor;
using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

Function interpreted(const Kernel& kernel) { return compile(kernel, tg::Target::interpreter()); }

// A kernel with one output Y of n elements, written by one grid body.
template <class F>
Kernel writes(int n, DType type, F body) {
  return kernel("writes", [&] {
    Tensor Y = output("Y", {n}, type);
    grid(1, [&](Index) { body(Y); });
  });
}

Ints ints_of(const Kernel& kernel, int n) {
  const Data y = Data::full({n}, i32, -7);
  interpreted(kernel)(y);
  return y.values<std::int32_t>();
}
Floats floats_of(const Kernel& kernel, int n, DType type = f32) {
  const Data y = Data::full({n}, type, -7);
  interpreted(kernel)(y);
  return y.values<float>();
}

TEST(Interpreter, AddsVectors) {
  const Function add = interpreted(kernel("add", [] {
    Dim N("N");
    Tensor A = input("A", {N}, f32), B = input("B", {N}, f32), C = output("C", {N}, f32);
    grid(ceildiv(N, 4), [&](Index b) {
      Fragment a = load(A.at(b * 4), {4}), x = load(B.at(b * 4), {4});
      parallel(a, [&](Index i) { a(i) += x(i); });
      copy(a, C.at(b * 4));
    });
  }));
  for (const int n : {0, 1, 4, 9}) {
    const Data a = Data::arange(n, f32), b = Data::arange(n, f32, 10), c = Data::zeros({n}, f32);
    add(a, b, c);
    for (int i = 0; i < n; ++i) EXPECT_EQ(c.at<float>(i), 10 + 2 * i);
    const Data twice = Data::zeros({2 * n}, f32);  // strided and reversed operands
    add(a.flip(0), b, twice.slice(0, 0, 2 * n, 2));
    for (int i = 0; i < n; ++i) EXPECT_EQ(twice.at<float>(2 * i), n - 1 - i + 10 + i);
  }
}

TEST(Interpreter, MultipliesWithTransposes) {
  const Function gemm = interpreted(kernel("gemms", [] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, f16), B = input("B", {N, K}, f16), C = output("C", {M, N}, f32);
    grid(ceildiv(M, 4), ceildiv(N, 8), [&](Index bx, Index by) {
      Fragment acc({4, 8}, f32, 0);
      pipelined(ceildiv(K, 4), [&](Index k) {
        Shared a({4, 4}, f16), b({8, 4}, f16);
        copy(A.at(bx * 4, k * 4), a);
        copy(B.at(by * 8, k * 4), b);
        tg::lang::gemm(a, b.T(), acc);
      });
      copy(acc, C.at(bx * 4, by * 8));
    });
  }));
  const Data a = Data::random_integers({6, 7}, f16, 1, -4, 5),
             b = Data::random_integers({9, 7}, f16, 2, -4, 5);
  const Data c = Data::zeros({6, 9}, f32);
  gemm(a, b, c);
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 9; ++j) {
      double sum = 0;
      for (int k = 0; k < 7; ++k) sum += a.get({i, k}) * b.get({j, k});
      EXPECT_EQ(c.get({i, j}), sum);
    }
  }
}

TEST(Interpreter, Reduces) {
  const Function reduce = interpreted(kernel("reduces", [] {
    Tensor X = input("X", {3, 4}, f32), Y = output("Y", {5, 3}, f32), Z = output("Z", {4}, f32);
    grid(1, [&](Index) {
      Fragment x = load(X, {3, 4});
      copy(reduce_sum(x), Y.slice(0));
      copy(reduce_max(x), Y.slice(1));
      copy(reduce_min(x), Y.slice(2));
      copy(reduce_absmax(x), Y.slice(3));
      Fragment running({3}, f32, 100);
      reduce_sum(x, running);
      copy(running, Y.slice(4));
      copy(reduce_sum(x, 0), Z);
    });
  }));
  const Data x = Data::from<float>({1, -2, 3, 4, NAN, 1, 2, -8, 0, 0, 5, -1}, {3, 4});
  const Data y = Data::zeros({5, 3}, f32), z = Data::zeros({4}, f32);
  reduce(x, y, z);
  EXPECT_EQ(y.get({0, 0}), 6);
  EXPECT_TRUE(std::isnan(y.get({0, 1})));
  EXPECT_EQ(y.get({1, 1}), 2);  // the other one if one is NaN
  EXPECT_EQ(y.get({2, 1}), -8);
  EXPECT_EQ(y.get({3, 0}), 4);
  EXPECT_EQ(y.get({4, 2}), 104);
  EXPECT_EQ(z.get({2}), 10);
}

TEST(Interpreter, ClipsAtViews) {
  const Function clip = interpreted(kernel("clips", [] {
    Tensor X = input("X", {10}, f32), Y = output("Y", {10}, f32, {.zero = true}), Z = output("Z", {8}, f32);
    Tensor begin = input("begin", {2}, i32);
    grid(1, [&](Index) {
      Tensor x = X.slice(range(begin(0), begin(1))), y = Y.slice(range(begin(0), begin(1)));
      Shared s({8}, f32);
      copy(x.at(-2), s, {.fill = -1});
      copy(s, Z);
      copy(s, y.at(-2));
      y(0) = x(0) + x(100) + x(-1);  // outside reads as 0
      y(-1) = 5;                     // and is not written
    });
  }));
  const Data x = Data::arange(10, f32), y = Data::full({10}, f32, 9), z = Data::zeros({8}, f32);
  clip(x, y, z, Data::from<std::int32_t>({3, 6}));
  EXPECT_EQ(z.values<float>(), (Floats{-1, -1, 3, 4, 5, -1, -1, -1}));
  EXPECT_EQ(y.values<float>(), (Floats{0, 0, 0, 3, 4, 5, 0, 0, 0, 0}));
}

TEST(Interpreter, GathersRows) {
  const Function rows = interpreted(kernel("gathers", [] {
    Tensor X = input("X", {4, 2}, f32), list = input("list", {3}, i32), Y = output("Y", {3, 2}, f32);
    grid(1, [&](Index) {
      Shared s({3, 2}, f32);
      gather(X, list, s);
      copy(s, Y);
    });
  }));
  const Data y = Data::zeros({3, 2}, f32);
  rows(Data::arange(8, f32).reshape({4, 2}), Data::from<std::int32_t>({3, -1, 0}), y);
  EXPECT_EQ(y.values<float>(), (Floats{6, 7, 0, 0, 0, 1}));
}

TEST(Interpreter, ReshapesAndSlicesTiles) {
  EXPECT_EQ(ints_of(writes(8, i32,
                           [](Tensor Y) {
                             Shared s({2, 4}, i32);
                             parallel(s, [&](Index i, Index j) { s(i, j) = i * 10 + j; });
                             Shared t = s.reshape({4, 2}).T();  // [2, 4]
                             parallel(4, [&](Index j) {
                               Y(j) = t(1, j);
                               Y(4 + j) = s.slice(1)(j);
                             });
                           }),
                    8),
            (Ints{1, 3, 11, 13, 10, 11, 12, 13}));
}

// What the condition itself assigns may end the loop, whose body changes nothing of it.
TEST(Interpreter, EndsByItsCondition) {
  EXPECT_EQ(ints_of(writes(2, i32,
                           [](Tensor Y) {
                             Var n = 0, sum = 0;
                             loop_while(
                                 [&] {
                                   n += 1;
                                   return Expr(n) < 5;
                                 },
                                 [&] { sum += 10; });
                             Y(0) = n;
                             Y(1) = sum;
                           }),
                    2),
            (Ints{5, 40}));
}

TEST(Interpreter, ControlsFlow) {
  EXPECT_EQ(ints_of(writes(5, i32,
                           [](Tensor Y) {
                             Var n = 0, sum = 0;
                             loop_while(
                                 [&] { return Expr(n) < 10; },
                                 [&] {
                                   n += 1;
                                   break_if(Expr(n) == 5);
                                   when(Expr(n) % 2 == 0, [&] { sum += n; }).otherwise([&] { sum += 100; });
                                 });
                             Y(0) = n;
                             Y(1) = sum;
                             Var count = 0;
                             serial(range(3, 3), [&](Index) { count += 1; });
                             serial(range(5, 2), [&](Index) { count += 1; });
                             unrolled(3, [&](Index i) { count += i; });
                             Y(2) = count;
                             exit_if(count == 3);
                             Y(3) = 1;
                           }),
                    5),
            (Ints{5, 206, 3, -7, -7}));
}

TEST(Interpreter, RoundsAndConverts) {
  EXPECT_EQ(floats_of(writes(4, e4m3,
                             [](Tensor Y) {
                               Y(0) = 1000.0f;
                               Y(1) = 1.03f;
                               Y(2) = bf16(1.01f) * 100;
                               Y(3) = f32(i32(-3.9f));
                             }),
                      4, e4m3),
            (Floats{448, 1, 104, -3}));
  EXPECT_EQ(ints_of(writes(6, i32,
                           [](Tensor Y) {
                             Shared s({2}, i8);
                             s(0) = 200;
                             s(1) = -129;
                             Y(0) = s(0);
                             Y(1) = s(1);
                             Y(2) = Expr(-7) / Y(0);
                             Y(3) = floordiv(Expr(Y(0)), 5);
                             Y(4) = i32(bitcast(f32(Expr(Y(1))), u32) >> 23);
                             Y(5) = Expr(Y(1)) << 40;
                           }),
                    6),
            (Ints{-56, 127, 0, -12, 133, 0}));
}

TEST(Interpreter, DropsInvalidValuesThatDoNotCount) {
  EXPECT_EQ(ints_of(writes(3, i32,
                           [](Tensor Y) {
                             Shared s({4}, i32);
                             s(1) = 4;
                             parallel(3, [&](Index i) {
                               Expr x = s(i + 2), zero = i - i;
                               Y(i) = select(i >= 0, i, x + i / zero);
                             });
                             Shared t({4}, i32);
                             copy(s, t);  // carries undefined elements
                             Y(1) = t(1);
                           }),
                    3),
            (Ints{0, 4, 2}));
}

TEST(Interpreter, AtomicsAndSumsInAnyOrder) {
  const Function sums = interpreted(kernel("atomics", [] {
    Dim N("N");
    Tensor X = input("X", {N}, f32), Y = output("Y", {4}, f32, {.zero = true});
    Tensor H = output("H", {4}, i32, {.zero = true});
    grid(ceildiv(N, 8), [&](Index b) {
      Shared x({8}, f32), sum({4}, f32);
      Fragment partial({4}, f32, 0);
      copy(X.at(b * 8), x);
      parallel(8, [&](Index i) { atomic_add(H(i32(x(i)) % 4), 1); });
      clear(sum);
      parallel(8, [&](Index i) { atomic_add(sum(i % 4), x(i)); });
      copy(sum, partial);
      atomic_add(Y.at(0), partial);
    });
  }));
  const Data y = Data::zeros({4}, f32), h = Data::zeros({4}, i32);
  sums(Data::arange(32, f32), y, h);
  EXPECT_EQ(y.values<float>(), (Floats{112, 120, 128, 136}));
  EXPECT_EQ(h.values<std::int32_t>(), (Ints{8, 8, 8, 8}));
}

Kernel ordered_sum(bool distinct) {
  return kernel("ordered", [&] {
    Tensor X = input("X", {16}, f32), Y = output("Y", {1}, f32, {.zero = true});
    grid(16, [&](Index b) {
      Fragment x = load(X.at(b), {1});
      accumulate(Y.at(0), x, {.order = distinct ? Expr(15 - b) : Expr(b / 2)});
    });
  });
}

TEST(Interpreter, AccumulatesInOrder) {
  const Data x = Data::random_normal({16}, f32, 3), y = Data::zeros({1}, f32);
  interpreted(ordered_sum(true))(x, y);
  float expected = 0;
  for (int i = 15; i >= 0; --i) expected += x.at<float>(i);
  EXPECT_EQ(y.at<float>(0), expected);
  EXPECT_ERROR(tg::ProgramError, "two contributions with the order 0", interpreted(ordered_sum(false))(x, y));
}

TEST(Interpreter, HoldsConsecutiveOrdersToTheirPromise) {
  const auto sum = [](int first) {
    return kernel("consecutive", [&] {
      Tensor X = input("X", {16}, f32), Y = output("Y", {4}, f32, {.zero = true});
      grid(16, [&](Index b) {
        Fragment x = load(X.at(b), {1});
        accumulate(Y.at(b % 4), x, {.order = b / 4 + first, .consecutive = true});
      });
    });
  };
  const Data x = Data::arange(16, f32), y = Data::zeros({4}, f32);
  interpreted(sum(0))(x, y);
  EXPECT_EQ(y.values<float>(), (Floats{24, 28, 32, 36}));
  EXPECT_ERROR(tg::ProgramError, "contribution 0 to", interpreted(sum(1))(x, y));
}

// A sum that the first contribution begins needs no clearing; elements without one stay undefined.
TEST(Interpreter, FirstContributionsOverwrite) {
  const auto sum = [](bool overwrite) {
    return kernel("overwrite", [&] {
      Tensor X = input("X", {16}, f32), Y = output("Y", {4}, f32), W = workspace("W", {4}, f32);
      grid(16, [&](Index b) {
        Fragment x = load(X.at(b), {1});
        accumulate(W.at(b % 4), x, {.order = b / 4, .consecutive = true, .overwrite = overwrite});
      });
      grid(4, [&](Index i) { Y(i) = W(i); });
    });
  };
  const Data x = Data::arange(16, f32), y = Data::zeros({4}, f32);
  interpreted(sum(true))(x, y);
  EXPECT_EQ(y.values<float>(), (Floats{24, 28, 32, 36}));
  EXPECT_ERROR(tg::ProgramError, "the element that an atomic combines with", interpreted(sum(false))(x, y));
}

TEST(Interpreter, GridsFollowEachOtherThroughAWorkspace) {
  const Function f = interpreted(kernel("two_grids", [] {
    Dim N("N");
    Tensor X = input("X", {N}, i32), Y = output("Y", {N}, i32), W = workspace("W", {N}, i32);
    grid(N, [&](Index i) { W(i) = X(i) * 2; });
    grid(N, [&](Index i) { Y(i) = W(N - 1 - i) + W(i); });
  }));
  const Data y = Data::zeros({5}, i32);
  f(Data::from<std::int32_t>({1, 2, 3, 4, 9}), y);
  EXPECT_EQ(y.values<std::int32_t>(), (Ints{20, 12, 12, 12, 20}));
}

TEST(Interpreter, GroupsRunOnTheirOwn) {
  EXPECT_EQ(ints_of(writes(8, i32,
                           [](Tensor Y) {
                             Shared s({4}, i32);
                             parallel(s, [&](Index i) { s(i) = i + 1; });
                             each_group(2, Group::warp, [&](Index g) {
                               Shared own({4}, i32);
                               parallel(own, [&](Index i) { own(i) = s(i) * 10 + g; });
                               copy(own, Y.at(g * 4));
                             });
                           }),
                    8),
            (Ints{10, 20, 30, 40, 11, 21, 31, 41}));
}

TEST(Interpreter, AliasedTensorsShareWrites) {
  const Function f = interpreted(kernel("aliased", [] {
    Tensor X = input("X", {4}, i32), Y = output("Y", {4}, i32);
    may_alias(X, Y);
    grid(1, [&](Index) {
      Y(0) = 7;
      Y(1) = X(0);
    });
  }));
  const Data memory = Data::from<std::int32_t>({1, 2, 3, 4});
  f(memory, memory);
  EXPECT_EQ(memory.values<std::int32_t>(), (Ints{7, 7, 3, 4}));
  const Data x = Data::from<std::int32_t>({1, 2, 3, 4}), y = Data::zeros({4}, i32);
  f(x, y);
  EXPECT_EQ(y.values<std::int32_t>(), (Ints{7, 1, 0, 0}));
}

TEST(Interpreter, PrintsOnceForABlock) {
  const Function f = interpreted(kernel("prints", [] {
    Tensor Y = output("Y", {2}, i32);
    grid(2, [&](Index b) {
      print("twice", b * 2);
      Y(b) = b;
    });
  }));
  testing::internal::CaptureStdout();
  f(Data::zeros({2}, i32));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[block bx0 = 0] twice = 0\n[block bx0 = 1] twice = 2\n");
}

}  // namespace
