// Branches for rows: who may decide about them, and which are taken by warps alone.
#include "passes/cuda/rows_of_groups.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/rows_of_warps.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace rows_of_groups_test {

using namespace lang;

struct Rows {
  Fragment &sum, &top;
  const Tensor& y;
  Index j;
};

struct BranchCase {
  const char* name;
  int rows, runs, threads;
  Deciders deciders;
  void (*body)(const Rows& rows);
};

void PrintTo(const BranchCase& c, std::ostream* out) { *out << c.name; }

// Steps of 64 columns; run r of the rows takes part in those whose word has bit r.
Kernel program(const BranchCase& c) {
  return kernel("rows", [&] {
    Dim N("N");
    Tensor x = input("x", {c.rows, 64}, bf16), y = input("y", {N, 64}, bf16), bits = input("bits", {N}, u32),
           out = output("out", {c.rows, 64}, f32);
    grid(1, {.threads = c.threads}, [&](Index) {
      Shared a({c.rows, 64}, bf16);
      copy(x.at(0, 0), a);
      Fragment sum({c.rows, 64}, f32, 0), top({c.rows}, f32, 0);
      pipelined(N / 64, {.stages = 2}, [&](Index j) {
        Shared b({64, 64}, bf16);
        copy(y.at(j * 64), b);
        Expr word = bits(j);
        std::vector<Expr> conditions;
        for (int run = 0; run < c.runs; ++run) conditions.push_back((word & (1u << run)) != 0u);
        when_rows(conditions, [&] {
          gemm(a, b.T(), sum);
          c.body({sum, top, y, j});
        });
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) += top(i); });
      copy(sum, out.at(0, 0));
    });
  });
}

class BranchesForRows : public ::testing::TestWithParam<BranchCase> {};

TEST_P(BranchesForRows, AreDecidedByThoseWhoHoldTheRows) {
  const BranchCase& c = GetParam();
  const testing::Lowered lowered(program(c));
  const Layouts layouts = infer_layouts(lowered.body(), c.threads, lowered.target);
  for (const auto* branch : testing::all_of<ir::If>(lowered.body()))
    if (!branch->of_rows.empty()) {
      EXPECT_EQ(deciders(*branch, c.threads, layouts, lowered.target), c.deciders);
    }
}

const BranchCase branch_cases[] = {
    {"rows_of_groups", 128, 2, 256, Deciders::warp_groups, [](const Rows&) {}},
    {"rows_of_groups_and_their_maxima", 128, 2, 256, Deciders::warp_groups,
     [](const Rows& r) {
       reduce_max(r.sum, r.top);
       parallel(r.sum, [&](Index i, Index c) { r.sum(i, c) -= r.top(i); });
     }},
    // A product of wgmma is a whole group's.
    {"rows_of_warps_by_a_product_of_groups", 128, 8, 256, Deciders::block, [](const Rows&) {}},
    {"rows_that_no_unit_has", 128, 4, 256, Deciders::block, [](const Rows&) {}},
    {"sums_over_the_rows", 128, 2, 256, Deciders::block,
     [](const Rows& r) {
       Fragment column = reduce_sum(r.sum, 0);
       parallel(r.sum, [&](Index i, Index c) { r.sum(i, c) += column(c) * 0; });
     }},
    {"columns_divided_among_groups", 64, 2, 256, Deciders::block, [](const Rows&) {}},
};

INSTANTIATE_TEST_SUITE_P(Table, BranchesForRows, ::testing::ValuesIn(branch_cases),
                         [](auto& info) { return std::string(info.param.name); });

// Where runs are the 16 rows of a warp, enough warps of a group multiply together, fewer each by themselves.
TEST(RowsOfWarps, AreMultipliedTogetherOrApart) {
  for (const auto& [runs, threads, made] :
       {std::tuple(4, 128, true), {8, 256, true}, {2, 256, false}, {1, 128, false}}) {
    const testing::Lowered lowered(
        program({"", threads / 2, runs, threads, Deciders::block, [](const Rows&) {}}));
    const ir::Body body = rows_of_warps(lowered.body(), threads, lowered.target);
    int by_warp = 0, together = 0;
    for (const auto* gemm : testing::all_of<ir::Gemm>(body)) ++(gemm->hints.by_warp ? by_warp : together);
    EXPECT_EQ(by_warp, made ? 1 : 0) << runs << " runs";
    EXPECT_EQ(together, 1) << runs << " runs";
    const auto branches = testing::all_of<ir::If>(body);
    // A group decides by a count if three or more of its four bits are set.
    ASSERT_EQ(branches.size(), made ? 2u : 1u);
    if (!made) continue;
    EXPECT_EQ(static_cast<int>(branches[0]->of_rows.size()), threads / 128);
    EXPECT_EQ(static_cast<int>(branches[1]->of_rows.size()), runs);
  }
}

TEST(RowsOfWarps, StayTogetherWhereWarpsWouldWait) {
  const testing::Lowered lowered(program({"", 64, 4, 128, Deciders::block, [](const Rows& r) {
                                            Fragment column = reduce_sum(r.sum, 0);
                                            parallel(r.sum,
                                                     [&](Index i, Index c) { r.sum(i, c) += column(c) * 0; });
                                          }}));
  const ir::Body body = rows_of_warps(lowered.body(), 128, lowered.target);
  for (const auto* gemm : testing::all_of<ir::Gemm>(body)) EXPECT_FALSE(gemm->hints.by_warp);
}

}  // namespace rows_of_groups_test
}  // namespace tegula::passes
