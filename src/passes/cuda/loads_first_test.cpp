// In which order a producer begins what it brings.
#include "passes/cuda/loads_first.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace loads_first_test {

using namespace lang;

enum class Order { converted_first, box_first, box_by_row_of_list, listed_rows };

// Products with a tile that is converted and scaled by threads, and with one that the copy engine brings.
lang::Kernel program(Order order) {
  return kernel("program", [&] {
    Dim M("M"), N("N");
    Tensor q = input("q", {M, 192}, bf16), bytes = input("bytes", {N, 128}, e4m3),
           scales = input("scales", {N}, f32), rest = input("rest", {N, 64}, bf16),
           out = output("out", {M, N}, f32), list = input("list", {N}, i32);
    grid(ceildiv(M, 64), [&](Index x) {
      Shared left({64, 128}, bf16), right({64, 64}, bf16);
      copy(q.at(x * 64, 0), left);
      copy(q.at(x * 64, 128), right);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index step) {
        Shared made({64, 128}, bf16), brought({64, 64}, bf16);
        Expr row = step * 64;
        const auto convert = [&] {
          parallel(made, [&](Index i, Index d) { made(i, d) = bytes(row + i, d) * scales(row + i); });
        };
        if (order != Order::box_first) convert();
        Expr begin = order == Order::box_by_row_of_list ? Expr(list(step)) : row;
        if (order == Order::listed_rows)
          gather(
              rest, [&](Index i) -> Expr { return list(row + i); }, brought);
        else
          copy(rest.at(begin, 0), brought);
        if (order == Order::box_first) convert();
        Fragment s({64, 64}, f32, 0);
        gemm(left, made.T(), s);
        gemm(right, brought.T(), s);
        copy(s, out.at(x * 64, row));
      });
    });
  });
}

class LoadsFirst : public ::testing::TestWithParam<Order> {};

// Where the loop that converts stands among the statements of a step, and what is only begun.
TEST_P(LoadsFirst, BeginBeforeConversions) {
  const testing::Lowered lowered(program(GetParam()));
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  const auto loops = testing::all_of<ir::For>(roles->producer);
  const auto loop = std::find_if(loops.begin(), loops.end(),
                                 [](const ir::For* own) { return own->kind == ir::LoopKind::pipelined; });
  ASSERT_NE(loop, loops.end());
  std::ptrdiff_t begun = -1, made = -1, at = 0;
  for (const ir::Stmt& s : (*loop)->body) {
    if (const auto fill = roles->fills.find(s.get()); fill != roles->fills.end())
      (ir::constant_value(fill->second->shape.back()) == 128 ? made : begun) = at;
    ++at;
  }
  ASSERT_GE(begun, 0);
  ASSERT_GE(made, 0);
  // The load of a number in front of the box stays behind the loop, and so does the box.
  EXPECT_EQ(begun < made, GetParam() != Order::box_by_row_of_list);
}

INSTANTIATE_TEST_SUITE_P(Orders, LoadsFirst,
                         ::testing::Values(Order::converted_first, Order::box_first,
                                           Order::box_by_row_of_list, Order::listed_rows));

}  // namespace loads_first_test
}  // namespace tegula::passes
