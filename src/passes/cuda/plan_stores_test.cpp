// Which sums the copy engine stores.
#include "passes/cuda/plan_stores.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace plan_stores_test {

using namespace lang;

struct StoreCase {
  const char* name;
  const char*
      plan;  // "rows x columns", the pack, and whether it is transposed; "" where threads store elements
  int m, n;
  layout::Division parts;
  void (*store)(const Tensor& out, const Fragment& sum, Index b);
  DType type = f32;
  bool turned = false;
};

void PrintTo(const StoreCase& c, std::ostream* out) { *out << c.name; }

std::string words(const std::optional<TensorStore>& plan) {
  if (!plan) return "";
  std::string text = std::to_string(plan->rows) + " x " + std::to_string(plan->columns);
  if (plan->pack > 1) text += ", pack " + std::to_string(plan->pack);
  return text + (plan->transposed ? ", transposed" : "");
}

class Stores : public ::testing::TestWithParam<StoreCase> {};

TEST_P(Stores, ByTheCopyEngine) {
  const StoreCase& c = GetParam();
  const auto written = kernel("stores", [&] {
                         Dim M("M"), N("N");
                         Tensor out = output("out", {M, N}, c.type);
                         grid(M, {.threads = 128}, [&](Index b) {
                           Fragment sum({c.m, c.n}, f32, 0);
                           c.store(out, sum, b);
                         });
                       }).ir();
  const auto copies = testing::all_of<ir::Copy>(written->grids.front().body);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(words(plan_store(copies[0]->from, copies[0]->to, {c.parts, c.turned})), c.plan);
}

const StoreCase store_cases[] = {
    {"f32",
     "64 x 32",
     128,
     128,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 128, 0)); }},
    {"bf16",
     "64 x 64",
     128,
     128,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 128, 0)); },
     bf16},
    {"columns_divided",
     "64 x 64",
     64,
     256,
     {1, 2},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 64, 0)); },
     bf16},
    {"transposed",
     "64 x 32, transposed",
     64,
     64,
     {1, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum.T(), out.at(b * 64, 0)); }},
    {"turned",
     "40 x 64, transposed",
     80,
     128,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 80, 0)); },
     bf16,
     true},
    {"turned_f32",
     "80 x 32, transposed",
     80,
     128,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 80, 0)); },
     f32,
     true},
    {"turned_of_two_blocks",
     "40 x 64, transposed",
     80,
     256,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 80, 0)); },
     bf16,
     true},
    {"turned_of_nine_eights",
     "40 x 64, transposed",
     72,
     128,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 72, 0)); },
     bf16,
     true},
    {"turned_of_many_rows",
     "32 x 64, transposed",
     152,
     256,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 152, 0)); },
     bf16,
     true},
    {"turned_of_few_rows",
     "",
     16,
     128,
     {2, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 16, 0)); },
     bf16,
     true},
    {"too_few_columns_for_the_parts",
     "",
     64,
     64,
     {1, 2},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 64, 0)); },
     bf16},
    {"columns_of_no_whole_row",
     "",
     64,
     48,
     {1, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum, out.at(b * 64, 0)); },
     bf16},
    {"transposed_bf16",
     "32 x 64, transposed",
     64,
     64,
     {1, 1},
     [](const Tensor& out, const Fragment& sum, Index b) { copy(sum.T(), out.at(b * 64, 0)); },
     bf16},
    {"part_of_the_sum",
     "",
     64,
     128,
     {1, 1},
     [](const Tensor& out, const Fragment& sum, Index b) {
       copy(sum.slice(all, range(0, 64)), out.at(b * 64, 0));
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, Stores, ::testing::ValuesIn(store_cases),
                         [](auto& info) { return std::string(info.param.name); });

// A box has the images whose pixels are the rows of a warp group.
TEST(Stores, OfSeveralImages) {
  const auto written = kernel("stores", [&] {
                         Dim images("images"), depth("depth"), h("h"), w("w"), n("n");
                         Tensor out = output("out", {images, depth, h, w, n}, bf16);
                         grid(images, {.threads = 256}, [&](Index b) {
                           Fragment sum({128, 64}, f32, 0);
                           copy(sum.reshape({8, 4, 4, 64}), out.slice(all, 0).at(b * 8, 0, 0, 0));
                         });
                       }).ir();
  const auto copies = testing::all_of<ir::Copy>(written->grids.front().body);
  ASSERT_EQ(copies.size(), 1u);
  const auto plan = plan_store(copies[0]->from, copies[0]->to, {{2, 1}});
  EXPECT_EQ(words(plan), "64 x 64, pack 16");
  EXPECT_EQ(plan->box, (std::vector<int>{4, 1, 4, 4}));
  EXPECT_TRUE(can_be_stored_by_warps(*copies[0]));
  const auto of_warps = plan_store(copies[0]->from, copies[0]->to, {{2, 1}}, true);
  EXPECT_EQ(words(of_warps), "16 x 64, pack 16");
  EXPECT_EQ(of_warps->box, (std::vector<int>{1, 1, 4, 4}));
}

// Of what is turned, a warp has columns: as many bytes as can be swizzled if elements have two.
TEST(Stores, OfTurnedSumsByWarps) {
  for (const DType type : {bf16, f32}) {
    const auto written = kernel("stores", [&] {
                           Dim m("m"), n("n");
                           Tensor out = output("out", {m, n}, type);
                           grid(m, {.threads = 128}, [&](Index b) {
                             Fragment sum({64, 96}, f32, 0);
                             copy(sum.T(), out.at(b * 96, 0));
                           });
                         }).ir();
    const auto copies = testing::all_of<ir::Copy>(written->grids.front().body);
    ASSERT_EQ(copies.size(), 1u);
    ASSERT_EQ(can_be_stored_by_warps(*copies[0]), type == bf16);
    if (type == f32) continue;
    const auto plan = plan_store(copies[0]->from, copies[0]->to, {{1, 1}}, true);
    EXPECT_EQ(words(plan), "48 x 16, transposed");
    EXPECT_EQ(plan->box, (std::vector<int>{48}));
  }
}

}  // namespace plan_stores_test
}  // namespace tegula::passes
