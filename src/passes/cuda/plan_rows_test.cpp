// Which looked-up rows threads bring in pieces of 16 bytes.
#include "passes/cuda/plan_rows.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace plan_rows_test {

using namespace lang;

struct RowsCase {
  const char* name;
  int elements;  // of a piece; 0: no pieces
  void (*body)(const Tensor& x, const Tensor& list, Index b);
};

void PrintTo(const RowsCase& c, std::ostream* out) { *out << c.name; }

class LookedUpRows : public ::testing::TestWithParam<RowsCase> {};

TEST_P(LookedUpRows, AreBroughtInPieces) {
  const RowsCase& c = GetParam();
  const testing::Lowered lowered(kernel("rows", [&] {
    Dim N("N"), L("L");
    Tensor x = input("x", {N, 64}, bf16), list = input("list", {L}, i32), y = output("y", {64, 64}, bf16);
    grid(1, [&](Index b) { c.body(x, list, b); });
    (void)y;
  }));
  int elements = 0;
  for (const ir::Stmt& s : lowered.body())
    if (const auto plan = plan_rows(s)) elements = plan->elements;
  EXPECT_EQ(elements, c.elements);
}

const RowsCase rows_cases[] = {
    {"gathered", 8,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 64}, bf16);
       gather(
           x, [&](Index i) { return list(i); }, t);
     }},
    {"gathered_by_a_loop_of_ones_own", 8,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 64}, bf16);
       parallel(t, [&](Index i, Index c) { t(i, c) = x(list(i), c); });
     }},
    {"aligned_columns", 8,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 32}, bf16);
       parallel(t, [&](Index i, Index c) { t(i, c) = x(list(i), c + 0); });
     }},
    {"part_of_the_columns", 8,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 32}, bf16);
       gather(
           x.slice(all, range(32, 64)), [&](Index i) { return list(i); }, t);
     }},
    {"columns_of_a_step", 8,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 32}, bf16);
       Expr step = list(0);
       gather(
           x.slice(all, range(step * 32, (step + 1) * 32)), [&](Index i) { return list(i); }, t);
     }},
    {"columns_that_begin_anywhere", 0,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 32}, bf16);
       Expr begin = list(0);
       gather(
           x.slice(all, range(begin, begin + 32)), [&](Index i) { return list(i); }, t);
     }},
    {"reshaped", 8,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 32}, bf16);
       gather(
           x.reshape({x.extent(0) * 2, 32}), [&](Index i) { return list(i); }, t);
     }},
    {"looked_up_column_by_column", 0,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 64}, bf16);
       parallel(t, [&](Index i, Index c) { t(i, c) = x(list(i + c), c); });
     }},
    {"backwards", 0,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 64}, bf16);
       parallel(t, [&](Index i, Index c) { t(i, c) = x(list(i), 63 - c); });
     }},
    {"scaled", 0,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 64}, bf16);
       parallel(t, [&](Index i, Index c) { t(i, c) = x(list(i), c) * 2; });
     }},
    {"of_another_type", 0,
     [](const Tensor& x, const Tensor& list, Index) {
       Shared t({64, 64}, f32);
       parallel(t, [&](Index i, Index c) { t(i, c) = f32(x(list(i), c)); });
     }},
    {"by_rows_of_the_same_tile", 0,
     [](const Tensor& x, const Tensor&, Index) {
       Shared t({64, 64}, bf16);
       fill(t, 0);
       parallel(t, [&](Index i, Index c) { t(i, c) = x(i32(f32(t(i, c))), c); });
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, LookedUpRows, ::testing::ValuesIn(rows_cases),
                         [](auto& info) { return std::string(info.param.name); });

// Rows one behind the other begin at multiples of what divides their bytes; those of any number of columns
// are supposed to begin at pieces.
TEST(PlanRows, UnitDividesTheBytesOfARow) {
  for (const auto& [columns, unit] :
       {std::pair(64, 16), std::pair(60, 8), std::pair(58, 4), std::pair(57, 2), std::pair(0, 16)}) {
    const testing::Lowered lowered(kernel("rows", [&] {
      Dim N("N"), L("L");
      Tensor x = columns > 0 ? input("x", {N, columns}, bf16) : input("x", {N, Dim("K")}, bf16);
      Tensor list = input("list", {L}, i32);
      grid(1, [&](Index) {
        Shared t({64, 64}, bf16);
        parallel(t, [&](Index i, Index c) { t(i, c) = x(list(i), c); });
      });
    }));
    for (const ir::Stmt& s : lowered.body())
      if (const auto plan = plan_rows(s)) {
        EXPECT_EQ(plan->unit, unit) << columns;
        EXPECT_EQ(plan->holds_words(), unit < 4) << columns;
      }
  }
}

}  // namespace plan_rows_test
}  // namespace tegula::passes
