// Loops over tiles that move up to the loop before that goes over the same rows.
#include "codegen/rows_together.hpp"

#include <gtest/gtest.h>

#include "ir/visit.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen {
namespace rows_together_test {

using namespace lang;
using lang::Tensor;

struct Tiles {
  Fragment a, b, other;
  Tensor in, out;
};

void first_loop(Tiles& x) {
  parallel(x.a, [&](Index i, Index j) { x.a(i, j) = x.a(i, j) + 1.0f; });
}
void other_loop(Tiles& x) {
  parallel(x.other, [&](Index i, Index j) { x.other(i, j) = x.other(i, j) * 2.0f; });
}
void second_loop(Tiles& x) {
  parallel(x.b, [&](Index i, Index j) { x.b(i, j) = x.a(i, j) * 3.0f; });
}

// The tiles that the loops of the grid store to, in order.
std::string order(const std::function<void(Tiles&)>& steps) {
  const lang::Kernel program = lang::kernel("loops", [&] {
    Tensor in = input("in", {16, 32}, f32), out = output("out", {16, 32}, f32);
    grid(1, [&](Index) {
      Tiles x{Fragment("a", {16, 32}, f32, 1), Fragment("b", {16, 32}, f32, 2),
              Fragment("c", {16, 64}, f32, 3), in, out};
      copy(in, x.a);
      steps(x);
      copy(x.b, out);
    });
  });
  std::string result;
  for (const ir::Stmt& s : rows_together(program.ir()->grids[0].body)) {
    const auto* loop = ir::as<ir::For>(s);
    if (!loop) continue;
    ir::for_each_stmt(loop->body, [&](const ir::Stmt& inner) {
      if (const auto* store = ir::as<ir::Store>(inner)) result += store->to.view.buffer->name[0];
    });
  }
  return result;
}

TEST(RowsTogether, MoveUpToWhatTheyRead) {
  EXPECT_EQ(order([](Tiles& x) { first_loop(x), other_loop(x), second_loop(x); }), "abc");
  EXPECT_EQ(order([](Tiles& x) {
              first_loop(x), other_loop(x);
              Fragment d("d", {16, 32}, f32);
              parallel(d, [&](Index i, Index j) { d(i, j) = x.a(i, j) - 1.0f; });
              parallel(x.b, [&](Index i, Index j) { x.b(i, j) = d(i, j) - 1.0f; });
            }),
            "adbc");
}

TEST(RowsTogether, StayWhereSomethingBetweenMatters) {
  EXPECT_EQ(order([](Tiles& x) {  // what it reads is changed
              first_loop(x), other_loop(x);
              parallel(16, [&](Index i) { x.a(i, 3) = x.other(i, 40) * 2.0f; });
              second_loop(x);
            }),
            "acab");
  EXPECT_EQ(order([](Tiles& x) {  // what it writes is read
              first_loop(x);
              parallel(x.other, [&](Index i, Index j) { x.other(i, j) = x.b(i, j / 2) * 2.0f; });
              second_loop(x);
            }),
            "acb");
  EXPECT_EQ(order([](Tiles& x) {  // a number changes
              Var factor = 1.0f;
              first_loop(x);
              factor = factor * 2.0f;
              parallel(x.b, [&](Index i, Index j) { x.b(i, j) = x.a(i, j) * factor; });
            }),
            "ab");
  EXPECT_EQ(order([](Tiles& x) {  // it reads a tensor, which copies in between may write
              first_loop(x), other_loop(x);
              parallel(x.b, [&](Index i, Index j) { x.b(i, j) = x.a(i, j) * x.in(i, j); });
            }),
            "acb");
}

TEST(RowsTogether, StayWhereNothingIsShared) {
  EXPECT_EQ(order([](Tiles& x) {
              first_loop(x), other_loop(x);
              parallel(x.b, [&](Index i, Index j) { x.b(i, j) = x.b(i, j) * 3.0f; });
            }),
            "acb");
}

}  // namespace rows_together_test
}  // namespace tegula::codegen
