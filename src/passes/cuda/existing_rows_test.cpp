// What loops that convert rows need not ask where all rows of a tile exist, and who converts them.
#include "passes/cuda/existing_rows.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/converted_tile.hpp"

namespace tegula::passes {
namespace existing_rows_test {

using namespace lang;

struct ChoiceCase {
  const char* name;
  std::size_t conditions;  // of the whole tile
  bool is_decided;         // no row asks any more
  Expr (*page)(const Expr& token, const Expr& row, const Expr& end, const Tensor& list);
};

void PrintTo(const ChoiceCase& c, std::ostream* out) { *out << c.name; }

class ExistingRowsOf : public ::testing::TestWithParam<ChoiceCase> {};

bool has_choice(const ir::Stmt& loop) {
  bool found = false;
  ir::for_each_stmt({loop}, [&](const ir::Stmt& s) {
    ir::for_each_expr(s, [&](const ir::Expr& e) {
      ir::for_each_node(e, [&](const ir::Expr& x) { found |= x->op == ir::Op::select; });
    });
  });
  return found;
}

TEST_P(ExistingRowsOf, AskOnce) {
  const ChoiceCase& c = GetParam();
  const testing::ConvertedTile tile([&] {
    Dim N("N"), L("L");
    Tensor bytes = input("bytes", {N, 64, 128}, e4m3), list = input("list", {L}, i32);
    Expr end = scalar("end", i32);
    return [=](const Index& block, const Index& i, const Index& d) -> Expr {
      Expr page = c.page(block * 64 + i, i, end, list);
      return bytes(page, i, d);
    };
  });
  const RowConversion plan = tile.plan();
  const ExistingRows whole = existing_rows(plan);
  EXPECT_EQ(whole.conditions.size(), c.conditions);
  EXPECT_EQ(has_choice(whole.rows.loop), !c.is_decided);
  for (const ir::Expr& e : whole.conditions)
    for (const ir::VariablePtr& index : ir::as<ir::For>(plan.loop)->index) EXPECT_FALSE(ir::uses(e, index));
}

const ChoiceCase choices[] = {
    {"of_tokens_before_the_end", 1, true,
     [](const Expr& token, const Expr&, const Expr& end, const Tensor&) -> Expr {
       return select(token < end, 7, -1);
     }},
    {"of_tokens_behind_the_begin", 1, true,
     [](const Expr& token, const Expr&, const Expr& end, const Tensor&) -> Expr {
       return select(token >= end, 7, -1);
     }},
    {"of_places_that_differ_by_row", 0, false,
     [](const Expr& token, const Expr& row, const Expr& end, const Tensor&) -> Expr {
       return select(token < end, row, -1);
     }},
    {"of_rows_in_no_order", 0, false,
     [](const Expr& token, const Expr&, const Expr& end, const Tensor&) -> Expr {
       return select(token % 8 < end, 3, -1);
     }},
    {"of_rows_in_reverse", 0, false,
     [](const Expr& token, const Expr&, const Expr& end, const Tensor&) -> Expr {
       return select(end - token < 5, 3, -1);
     }},
    {"of_rows_looked_up", 0, false,
     [](const Expr&, const Expr& row, const Expr& end, const Tensor& list) -> Expr {
       return select(list(row) < end, 3, -1);
     }},
};

INSTANTIATE_TEST_SUITE_P(Choices, ExistingRowsOf, ::testing::ValuesIn(choices),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace existing_rows_test
}  // namespace tegula::passes
