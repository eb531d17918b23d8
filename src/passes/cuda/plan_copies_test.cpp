// Which copies into shared tiles the copy engine does, in which boxes, and which it leaves to threads.
#include "passes/cuda/plan_copies.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace plan_copies_test {

using namespace lang;

constexpr const char* by_threads = "threads";

// "box 64 x 64 columns, swizzled, clipped"
std::string words(const Planned<TensorCopy>& plan) {
  if (!plan) return by_threads;
  std::string text = "box ";
  for (const int extent : plan->box) text += std::to_string(extent) + " x ";
  text += std::to_string(plan->columns) + " columns";
  if (plan->first_row > 0) text += " from row " + std::to_string(plan->first_row);
  if (plan->is_swizzled) text += ", swizzled";
  if (plan->is_clipped) text += ", clipped";
  return text;
}

struct CopyCase {
  const char* name;
  const char* plan;
  void (*copies)(const Tensor& x, const Tensor& lists, Index b);
  bool operand = true;  // tensor cores read the tile
};

void PrintTo(const CopyCase& c, std::ostream* out) { *out << c.name; }

class Copies : public ::testing::TestWithParam<CopyCase> {};

TEST_P(Copies, AreBoxesOrLeftToThreads) {
  const CopyCase& c = GetParam();
  const auto written = kernel("copies", [&] {
                         Dim B("B"), N("N");
                         Tensor x = input("x", {B, N, 128}, bf16), lists = input("lists", {B, N}, i32);
                         grid(B, [&](Index b) { c.copies(x, lists, b); });
                       }).ir();
  const auto copies = testing::all_of<ir::Copy>(written->grids.front().body);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(words(plan_copy(*copies[0], c.operand)), c.plan);
}

const CopyCase copy_cases[] = {
    {"rows_of_an_operand", "box 1 x 64 x 64 columns, swizzled",
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b).at(b * 64, 0), t);
     }},
    {"rows_that_elements_are_read_from", "box 1 x 64 x 128 columns",
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b).at(b * 64, 0), t);
     },
     false},
    {"half_of_the_rows", "box 1 x 32 x 64 columns from row 32, swizzled",
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b).at(b * 64, 0), t.slice(range(32, 64)));
     }},
    {"vector", "box 1 x 64 columns",
     [](const Tensor&, const Tensor& lists, Index b) {
       Shared t({64}, i32);
       copy(lists.slice(b).at(64), t);
     },
     false},
    {"part_with_an_end_of_its_own", "box 1 x 64 x 64 columns, swizzled, clipped",
     [](const Tensor& x, const Tensor& lists, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b, range(0, lists(b, 0))).at(b * 64, 0), t);
     }},
    {"part_as_large_as_the_tile", "box 1 x 64 x 64 columns, swizzled",
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b, range(b * 64, (b + 1) * 64)).at(0, 0), t);
     }},
    {"part_smaller_than_the_tile", "box 1 x 64 x 64 columns, swizzled, clipped",
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b, range(b * 64, b * 64 + 63)).at(0, 0), t);
     }},
    {"beginning_anywhere", "box 1 x 64 columns, clipped",
     [](const Tensor&, const Tensor& lists, Index b) {
       Shared t({64}, i32);
       copy(lists.slice(b).at(b), t);
     },
     false},
    {"more_rows_than_a_box", by_threads,
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({512, 64}, bf16);
       copy(x.slice(b).at(0, 0), t);
     }},
    {"transposed", by_threads,
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({128, 64}, bf16);
       copy(x.slice(b).at(b * 64, 0), t.T());
     }},
    {"columns_of_less_than_16_bytes", by_threads,
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 4}, bf16);
       copy(x.slice(b).at(b * 64, 0), t);
     }},
    {"part_of_the_tiles_columns", by_threads,
     [](const Tensor& x, const Tensor&, Index b) {
       Shared t({64, 128}, bf16);
       copy(x.slice(b).at(b * 64, 0), t.slice(all, range(0, 64)));
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, Copies, ::testing::ValuesIn(copy_cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace plan_copies_test
}  // namespace tegula::passes
