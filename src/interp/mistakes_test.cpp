// What a program may not do: each mistake is found, with its place and the remedy.
#include <gtest/gtest.h>

#include <cctype>

#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace mistakes_test {

using namespace tegula::lang;
namespace tg = tegula;
using tg::Function;
using Data = tg::Tensor;
using Ints = std::vector<std::int32_t>;

Function interpreted(const Kernel& kernel) { return tg::compile(kernel, tg::Target::interpreter()); }

struct Mistake {
  const char* name;
  std::vector<const char*> expected;  // texts in the message
  void (*body)(Tensor Y, Tensor X);   // Y: inout [8] i32, X: input [8] i32, all 3
  int blocks = 1;
};

const Mistake mistakes[] = {
    {"undefined element",
     {"element [2] of the tile `s0`", "was never written", "mistakes_test.cpp",
      "write every element before it is read, or drop"},
     [](Tensor Y, Tensor) {
       Shared s({4}, i32);
       s(1) = 0;
       Y(0) = s(2);
     }},
    {"undefined index",
     {"an index is invalid"},
     [](Tensor Y, Tensor) {
       Shared s({4}, i32);
       Y(s(0)) = 1;
     }},
    {"undefined condition",
     {"a condition is invalid"},
     [](Tensor Y, Tensor) {
       Shared s({4}, i32);
       when(s(0) == 1, [&] { Y(0) = 1; });
     }},
    {"undefined extent",
     {"the extent of a loop is invalid"},
     [](Tensor Y, Tensor) {
       Shared s({4}, i32);
       Expr n = s(0);
       serial(n, [&](Index) { Y(0) = 1; });
     }},
    {"undefined assertion",
     {"an asserted condition is invalid"},
     [](Tensor, Tensor) {
       Shared s({4}, i32);
       assert_that(s(0) == 1, "one");
     }},
    {"undefined copy",
     {"the value copied to a tensor is invalid"},
     [](Tensor Y, Tensor) {
       Shared s({4}, i32);
       copy(s, Y);
     }},
    {"undefined atomic",
     {"the operand of an atomic is invalid"},
     [](Tensor Y, Tensor) {
       Shared s({4}, i32);
       atomic_add(Y(0), s(0));
     }},
    {"undefined target of an atomic",
     {"the element that an atomic combines with is invalid"},
     [](Tensor, Tensor) {
       Shared s({4}, i32);
       atomic_add(s(0), 1);
     }},
    {"undefined reduction",
     {"an element that a reduction reads is invalid"},
     [](Tensor, Tensor) {
       Shared s({4}, i32);
       s(0) = 1;
       Fragment sum = reduce_sum(s);
     }},
    {"undefined gemm",
     {"an element that gemm adds to is invalid"},
     [](Tensor, Tensor) {
       Shared a({2, 2}, f32), b({2, 2}, f32);
       clear(a), clear(b);
       Fragment c({2, 2}, f32);
       gemm(a, b, c);
     }},
    {"poison spreads",
     {"holds an invalid value because", "divided by zero", "make the divisor nonzero, or drop the value"},
     [](Tensor Y, Tensor X) {
       Shared s({4}, i32);
       s(0) = 1 / (X(0) - 3);
       Y(0) = s(0) + 1;
     }},
    {"fresh tile",
     {"was never written", "i0 = 1"},
     [](Tensor Y, Tensor) {
       serial(2, [&](Index i) {
         Shared s({2}, i32);
         when(i == 0, [&] { s(0) = 1; });
         serial(1, [&](Index) {});
         Y(i) = s(0);
       });
     }},
    {"load outside a tile",
     {"index [7] read at", "is outside the tile `s0` of [4]",
      "read only inside the tile, or drop the value with select()"},
     [](Tensor Y, Tensor X) {
       Shared s({4}, i32);
       clear(s);
       Y(0) = s(X(0) + 4);
     }},
    {"store outside a tile",
     {"index [7] is outside the tile", "guard the store"},
     [](Tensor, Tensor X) {
       Shared s({4}, i32);
       s(X(0) + 4) = 1;
     }},
    {"reduction of a row outside a tile",
     {"index [6] is outside the tile `s0` of [4, 2]", "guard the statement with when()"},
     [](Tensor, Tensor X) {
       Shared s({4, 2}, i32);
       clear(s);
       Fragment sum = reduce_sum(s.slice(X(0) + 3, all));
     }},
    {"scan of a row outside a tile",
     {"index [4] is outside the tile `s0` of [4, 2]"},
     [](Tensor, Tensor X) {
       Shared s({4, 2}, i32);
       clear(s);
       Fragment sums = scan_sum(s.slice(X(0) + 1, all));
     }},
    {"product of a tile outside a tile",
     {"index [5] is outside the tile `s0` of [2, 2, 2]"},
     [](Tensor, Tensor X) {
       Shared a({2, 2, 2}, f32), b({2, 2}, f32);
       clear(a), clear(b);
       Fragment c({2, 2}, f32, 0);
       gemm(a.slice(X(0) + 2, all, all), b, c);
     }},
    {"accumulation of a row outside a tile",
     {"index [4] is outside the tile `s0` of [4, 2]"},
     [](Tensor Y, Tensor X) {
       Shared s({4, 2}, i32);
       clear(s);
       accumulate(Y.at(0), s.slice(X(0) + 1, all));
     }},
    {"overflow",
     {"the result of 3145728 * 3145728 does not fit i32", "u32(x) if it should wrap"},
     [](Tensor Y, Tensor X) { Y(0) = (X(0) << 20) * (X(1) << 20); }},
    {"overflow of a negated number",
     {"the result of -(-2147483648) does not fit i32"},
     [](Tensor Y, Tensor X) { Y(0) = -(X(0) - 3 - 2147483647 - 1); }},
    {"overflow of a sum of signs",
     {"the result of -2147483647 - 3 does not fit i32"},
     [](Tensor Y, Tensor X) { Y(0) = (X(0) - 3 - 2147483647) - X(1); }},
    {"overflow of abs",
     {"the result of abs(-2147483648) does not fit i32"},
     [](Tensor Y, Tensor X) { Y(0) = abs(X(0) - 3 - 2147483647 - 1); }},
    {"failed assertion",
     {"assertion failed: three is two", "block bx0 = 0"},
     [](Tensor, Tensor X) { assert_that(X(0) == 2, "three is two"); }},
    {"write-write in parallel",
     {"written here and written at", "another iteration of parallel()", "element [0]"},
     [](Tensor Y, Tensor) { parallel(4, [&](Index i) { Y(i / 2) = i; }); }},
    {"read-write in parallel",
     {"another iteration of parallel()"},
     [](Tensor Y, Tensor) { parallel(4, [&](Index i) { Y(i) = Y(i + 1); }); }},
    {"many reads, then a write",
     {"written here and read at mistakes_test.cpp:", "another iteration of parallel()"},
     [](Tensor, Tensor X) {
       Shared s({1}, i32);
       clear(s);
       parallel(4, [&](Index i) {
         Expr sum = s(0) + X(i);
         when(i == 3, [&] { s(0) = sum; });
       });
     }},
    {"tile in parallel",
     {"tile `s0`", "another iteration of parallel()"},
     [](Tensor, Tensor X) {
       Shared s({4}, i32);
       parallel(4, 2, [&](Index i, Index j) { s(i) = X(j); });
     }},
    {"atomic against plain",
     {"accumulated into here and", "another iteration of parallel()"},
     [](Tensor Y, Tensor) {
       parallel(4, [&](Index i) { when(i == 0, [&] { Y(0) = 1; }).otherwise([&] { atomic_add(Y(0), 1); }); });
     }},
    {"write-write of blocks",
     {"written here and written", "another block of the grid"},
     [](Tensor Y, Tensor) { Y(0) = 1; },
     2},
    {"read-write of blocks", {"another block of the grid"}, [](Tensor Y, Tensor) { Y(0) = Y(0) + 1; }, 2},
    {"groups",
     {"another instance of each_group()"},
     [](Tensor Y, Tensor) { each_group(2, Group::warp, [&](Index g) { Y(0) = g; }); }},
    {"accumulate and read",
     {"another statement of this grid"},
     [](Tensor Y, Tensor X) {
       Fragment x = load(X.at(0), {4});
       atomic_add(Y.at(0), x);
       Y(1) = Y(0) + 1;
     }},
    {"rows that are not concerned",
     {"when_rows() changes the element [2, 0] of `f0`", "whose row condition is false", "mistakes_test.cpp"},
     [](Tensor, Tensor X) {
       Fragment sum({4, 2}, i32, 0);
       Expr three = X(0);
       when_rows({three == 3, three > 3}, [&] { parallel(sum, [&](Index i, Index j) { sum(i, j) += 1; }); });
     }},
    {"undefined condition of rows",
     {"a condition of when_rows() is invalid"},
     [](Tensor, Tensor X) {
       Shared s({4}, i32);
       Fragment sum({4}, i32, 0);
       Expr three = X(0), never = s(0);
       when_rows({three == 3, three == 3 && never == 1}, [&] { clear(sum); });
     }},
    {"mixed atomics",
     {"depends on the order"},
     [](Tensor Y, Tensor X) {
       parallel(2, [&](Index i) {
         when(i == 0, [&] { atomic_add(Y(0), X(0)); }).otherwise([&] { atomic_min(Y(0), 2); });
       });
     }},
};

class InterpreterMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(InterpreterMistakes, AreFound) {
  const Mistake& mistake = GetParam();
  const Function f = interpreted(kernel("mistaken", [&] {
    Tensor Y = inout("Y", {8}, i32), X = input("X", {8}, i32);
    grid(mistake.blocks, [&](Index) { mistake.body(Y, X); });
  }));
  const Data y = Data::full({8}, i32, 1), x = Data::full({8}, i32, 3);
  try {
    f(y, x);
    ADD_FAILURE() << "no error";
  } catch (const tg::ProgramError& error) {
    for (const char* text : mistake.expected) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(y.values<std::int32_t>(), Ints(8, 1)) << "the caller's tensor has changed";
}

INSTANTIATE_TEST_SUITE_P(All, InterpreterMistakes, testing::ValuesIn(mistakes), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Interpreter, WorkspacesAndOutputsBeginUndefined) {
  const auto reads = [](bool of_workspace) {
    return interpreted(kernel("undefined", [&] {
      Tensor Y = output("Y", {2}, f32), W = workspace("W", {2}, f32);
      grid(1, [&](Index) { Y(0) = of_workspace ? Expr(W(1)) : Expr(Y(1)); });
    }));
  };
  const Data y = Data::zeros({2}, f32);
  EXPECT_ERROR(tg::ProgramError, "element [1] of the tensor `W`", reads(true)(y));
  EXPECT_ERROR(tg::ProgramError, "element [1] of the tensor `Y`", reads(false)(y));
}

TEST(Interpreter, StopsAtTheStepLimit) {
  const tg::ScopedVariable limit(tg::Variable::interpreter_steps, "1000");
  const Function f = interpreted(kernel("endless", [] {
    Tensor Y = output("Y", {1}, i32);
    grid(1, [&](Index) {
      Var n = 0;
      loop_while([&] { return Expr(n) >= 0; }, [&] { n = 1; });
      Y(0) = 1;
    });
  }));
  EXPECT_ERROR(tg::ProgramError, "more than the 1000 steps", f(Data::zeros({1}, i32)));
}

}  // namespace mistakes_test
