// Into which ranges of columns loops that convert rows are divided, and what remains in each of them.
#include "passes/cuda/column_ranges.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/converted_tile.hpp"

namespace tegula::passes {
namespace column_ranges_test {

using namespace lang;

struct Operands {
  Tensor bytes, scales, last;
};
struct Range {
  std::int64_t begin, end;
  std::size_t loads;
  bool operator==(const Range&) const = default;
};
struct RangeCase {
  const char* name;
  std::vector<Range> ranges;
  bool moves;  // the rows of all ranges
  Expr (*element)(const Operands& x, const Index& i, const Index& d);
};

void PrintTo(const Range& r, std::ostream* out) {
  *out << r.begin << " to " << r.end << ", " << r.loads << " loads";
}
void PrintTo(const RangeCase& c, std::ostream* out) { *out << c.name; }

class ColumnRangesOf : public ::testing::TestWithParam<RangeCase> {};

TEST_P(ColumnRangesOf, HaveTheirOwnLoads) {
  const RangeCase& c = GetParam();
  const testing::ConvertedTile tile([&] {
    const Operands x{input("bytes", {256, 128}, e4m3), input("scales", {256, 4}, f32),
                     input("last", {256, 128}, bf16)};
    return [=](const Index&, const Index& i, const Index& d) { return c.element(x, i, d); };
  });
  const RowConversion plan = tile.plan();
  std::vector<Range> ranges;
  for (const RowConversion& own : column_ranges(plan)) {
    const auto& loop = *ir::as<ir::For>(own.loop);
    EXPECT_EQ(own.statements.size() + 1, loop.body.size());
    ranges.push_back({ir::constant_value(loop.begin[1]), ir::constant_value(loop.end[1]),
                      testing::all_of<ir::Load>(loop.body).size()});
  }
  EXPECT_EQ(ranges, c.ranges);
  EXPECT_EQ(moving_ranges(plan).size(), c.moves ? c.ranges.size() : 0);
}

const RangeCase range_cases[] = {
    {"one_tensor",
     {{0, 128, 2}},
     true,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return x.bytes(i, d) * x.scales(i, d / 32);
     }},
    {"two_tensors",
     {{0, 96, 2}, {96, 128, 1}},
     true,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       Expr value = x.bytes(i, d) * x.scales(i, d / 32);
       return select(d < 96, value, x.last(i, d - 96));
     }},
    {"the_last_columns_first",
     {{0, 96, 1}, {96, 128, 1}},
     true,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return select(d >= 96, x.last(i, d - 96), x.bytes(i, d));
     }},
    {"three_ranges",
     {{0, 32, 1}, {32, 96, 2}, {96, 128, 1}},
     true,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return select(d < 32, x.bytes(i, d),
                     select(d < 96, x.bytes(i, d) * x.scales(i, d / 32), x.last(i, d - 96)));
     }},
    {"zeros_behind",
     {{0, 96, 1}, {96, 128, 0}},
     false,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return select(d < 96, x.bytes(i, d), 0.f);
     }},
    {"within_a_piece",
     {{0, 128, 2}},
     false,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return select(d < 88, x.bytes(i, d), x.last(i, d));
     }},
    {"by_the_row",
     {{0, 128, 2}},
     false,
     [](const Operands& x, const Index& i, const Index& d) -> Expr {
       return select(i < 32, x.bytes(i, d), x.last(i, d));
     }},
};
INSTANTIATE_TEST_SUITE_P(Programs, ColumnRangesOf, ::testing::ValuesIn(range_cases),
                         [](const auto& info) { return info.param.name; });

}  // namespace column_ranges_test
}  // namespace tegula::passes
