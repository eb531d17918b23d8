// By how much the coordinates of a row are larger than those of the row before.
#include "passes/cuda/moving_rows.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/converted_tile.hpp"

namespace tegula::passes {
namespace moving_rows_test {

using namespace lang;
using Steps = std::vector<std::int64_t>;

struct Operands {
  Tensor bytes, scales, list;
  Expr first;
};
struct MovingCase {
  const char* name;
  std::vector<Steps> steps;  // of each load of rows; none: they are not found by moving
  Expr (*element)(const Operands& x, const Index& i, const Index& d);
};

void PrintTo(const MovingCase& c, std::ostream* out) { *out << c.name; }

class MovingRowsOf : public ::testing::TestWithParam<MovingCase> {};

TEST_P(MovingRowsOf, AreEquallyFarApart) {
  const MovingCase& c = GetParam();
  const testing::ConvertedTile tile([&] {
    Dim N("N"), L("L");
    const Operands x{input("bytes", {N, 256, 128}, e4m3), input("scales", {N, 256, 4}, f32),
                     input("list", {L}, i32), scalar("first", i32)};
    return [=](const Index&, const Index& i, const Index& d) { return c.element(x, i, d); };
  });
  const RowConversion plan = tile.plan();
  const auto moving = moving_rows(plan);
  ASSERT_EQ(moving.has_value(), !c.steps.empty());
  if (!moving) return;
  std::vector<Steps> steps;
  for (const ir::Stmt& inner : ir::as<ir::For>(plan.loop)->body)
    if (moving->steps.contains(inner.get())) steps.push_back(moving->steps.at(inner.get()));
  EXPECT_EQ(steps, c.steps);
}

const MovingCase moving_cases[] = {
    {"of_a_page",
     {{0, 1, 0}},
     [](const Operands& x, const Index& i, const Index& d) -> Expr { return x.bytes(x.first, i, d); }},
    {"with_a_factor_of_each_row",
     {{0, 1, 0}, {0, 1, 0}},
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       Expr factor = x.scales(x.first, i, d / 32);
       return factor * x.bytes(x.first, i, d);
     }},
    {"with_a_factor_of_the_page",
     {{0, 1, 0}},
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       Expr factor = x.scales(x.first, 7, d / 32);
       return factor * x.bytes(x.first, i, d);
     }},
    {"two_apart",
     {{0, 2, 0}},
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return x.bytes(x.first, 2 * i + x.first, d);
     }},
    {"of_one_page_after_the_other",
     {{3, 1, 0}},
     [](const Operands& x, const Index& i, const Index& d) -> Expr { return x.bytes(i * 3, i, d); }},
    {"looked_up",
     {},
     [](const Operands& x, const Index& i, const Index& d) -> Expr { return x.bytes(x.list(i), i, d); }},
    {"of_a_page_that_is_looked_up",
     {{0, 1, 0}},
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return x.bytes(x.list(x.first), i, d);
     }},
    {"in_turns",
     {},
     [](const Operands& x, const Index& i, const Index& d) -> Expr { return x.bytes(x.first, i % 16, d); }},
    {"chosen_by_their_number",
     {},
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return select(i < x.first, x.bytes(x.first, i, d), 0.F);
     }},
};

INSTANTIATE_TEST_SUITE_P(Loops, MovingRowsOf, ::testing::ValuesIn(moving_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace moving_rows_test
}  // namespace tegula::passes
