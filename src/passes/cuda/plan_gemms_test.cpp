// Which instruction multiplies, and how warps or warp groups divide the product.
#include "passes/cuda/plan_gemms.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/operand_forms.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace plan_gemms_test {

using namespace lang;
using testing::Operand, testing::with_operand;
using enum GemmInstruction;

struct Product {
  const char* name;
  int m, n, k;
  int threads;
  GemmInstruction instruction;
  std::int64_t along_m, along_n;
  bool a_in_registers = false;
  DType type = bf16;
  Operand a = Operand::shared, b = Operand::transposed;
  int architecture = 90;
  bool swapped = false;
  std::vector<int> instructions = {};  // their columns; none: one of all columns of a warp group
};

void PrintTo(const Product& p, std::ostream* out) { *out << p.name; }

Kernel program(const Product& p) {
  return kernel("product", [&] {
    const DType sum = p.type.is_floating() ? f32 : i32;
    Tensor C = output("C", {p.m, p.n}, sum);
    grid(2, {.threads = p.threads}, [&](Index i) {
      Fragment c({p.m, p.n}, sum, 0);
      const auto shared = [&](const std::vector<int>& shape) {
        Shared tile = testing::shared_tile(shape, p.type);
        fill(tile, 0);
        return tile;
      };
      const auto fragment = [&](const std::vector<int>& shape) {
        return Fragment({shape[0], shape[1]}, p.type, 0);
      };
      with_operand(p.a, p.m, p.k, i, shared, fragment, [&](const auto& a) {
        with_operand(p.b, p.k, p.n, i, shared, fragment, [&](const auto& b) { gemm(a, b, c); });
      });
      copy(c, C.at(0, 0));
    });
  });
}

class Products : public ::testing::TestWithParam<Product> {};

TEST_P(Products, AreDividedAmongWarps) {
  const Product& p = GetParam();
  const auto written = program(p).ir();
  const auto products = testing::all_of<ir::Gemm>(written->grids.front().body);
  ASSERT_EQ(products.size(), 1u);
  const GemmPlan plan = plan_gemm(*products[0], p.threads, {p.architecture});
  EXPECT_EQ(plan.instruction, p.instruction);
  EXPECT_EQ(plan.a_in_registers, p.a_in_registers);
  if (p.instruction == fma) return;
  EXPECT_EQ(plan.parts.along_m, p.along_m);
  EXPECT_EQ(plan.parts.along_n, p.along_n);
  const bool of_32 = p.type.bits() == 8 && (p.instruction == wgmma || p.type.is_integer());
  EXPECT_EQ(plan.k, of_32 ? 32 : 16);
  EXPECT_EQ(plan.swapped, p.swapped);
  EXPECT_EQ(plan.fallback.why.empty(), p.instruction == wgmma || p.architecture < 90);
  if (p.instruction != wgmma) return;
  const std::vector<int> one{static_cast<int>((p.swapped ? p.m : p.n) / p.along_n)};
  EXPECT_EQ(plan.columns, p.instructions.empty() ? one : p.instructions);
}

using enum testing::Operand;
const Product products[] = {
    {"one_group", 64, 128, 64, 128, wgmma, 1, 1},
    {"two_groups_by_rows", 128, 256, 64, 256, wgmma, 2, 1},
    {"two_groups_by_columns", 64, 256, 64, 256, wgmma, 1, 2},
    {"two_accumulators_a_group", 256, 128, 64, 256, wgmma, 2, 1},
    {"a_transposed", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, transposed},
    {"b_along_n", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, shared, shared},
    {"b_along_n_divided", 64, 128, 64, 256, wgmma, 1, 2, false, f16, shared, shared},
    {"a_in_registers", 64, 128, 64, 128, wgmma, 1, 1, true, bf16, fragment},
    {"columns_of_a_fragment", 64, 128, 64, 128, wgmma, 1, 1, true, bf16, fragment_part},
    {"a_in_registers_divided_by_columns", 64, 256, 64, 256, wgmma, 1, 2, false, bf16, fragment},
    {"8_bits_along_k", 64, 128, 128, 128, wgmma, 1, 1, false, e4m3},
    {"integers_along_k", 128, 128, 256, 256, wgmma, 2, 1, false, i8},
    {"integers_without_sign", 64, 24, 64, 128, wgmma, 1, 1, false, u8},
    {"integers_across_k", 64, 128, 128, 128, mma_sync, 4, 1, false, i8, shared, shared},
    {"integers_without_instruction", 64, 40, 128, 128, mma_sync, 4, 1, false, i8},
    {"integers_before_hopper", 64, 128, 128, 128, mma_sync, 4, 1, false, i8, shared, transposed, 80},
    // Parts of tiles.
    {"a_part_along_k", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, columns},
    {"a_rows", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, rows},
    {"a_chosen", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, chosen},
    {"a_reshaped", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, reshaped},
    {"b_columns", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, shared, columns},
    {"b_columns_inside_a_block", 64, 32, 64, 128, wgmma, 1, 1, false, bf16, shared, columns},
    {"b_part_along_k", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, shared, rows},
    {"b_chosen", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, shared, chosen},
    {"b_reshaped", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, shared, reshaped},
    {"part_along_k_of_8_bits", 64, 128, 32, 128, wgmma, 1, 1, false, e4m3, columns},
    // Instructions of several widths: each begins with a block of columns, or is within one.
    {"blocks_of_b_shared_by_groups", 64, 64, 64, 256, wgmma, 1, 2, false, bf16, shared, shared},
    {"b_along_n_in_parts_of_blocks",
     64,
     448,
     64,
     256,
     wgmma,
     1,
     2,
     false,
     bf16,
     shared,
     shared,
     90,
     false,
     {32, 32, 32, 32, 32, 32, 32}},
    {"more_than_an_instruction",
     64,
     272,
     64,
     128,
     wgmma,
     1,
     1,
     false,
     bf16,
     shared,
     shared,
     90,
     false,
     {144, 128}},
    {"more_than_an_instruction_along_k",
     64,
     272,
     64,
     128,
     wgmma,
     1,
     1,
     false,
     bf16,
     shared,
     transposed,
     90,
     false,
     {136, 136}},
    {"three_instructions",
     64,
     576,
     64,
     128,
     wgmma,
     1,
     1,
     false,
     bf16,
     shared,
     shared,
     90,
     false,
     {192, 192, 192}},
    {"columns_from_inside_a_block",
     64,
     120,
     64,
     128,
     wgmma,
     1,
     1,
     false,
     bf16,
     shared,
     last_columns,
     90,
     false,
     {56, 64}},
    // With the operands exchanged.
    {"rows_of_half_a_group", 32, 64, 64, 128, wgmma, 1, 1, false, bf16, shared, transposed, 90, true},
    {"few_rows", 8, 128, 64, 128, wgmma, 1, 1, false, bf16, shared, shared, 90, true},
    {"few_rows_of_two_groups", 16, 128, 64, 256, wgmma, 2, 1, false, bf16, shared, transposed, 90, true},
    {"few_rows_and_columns_of_two_groups", 16, 64, 64, 256, wgmma, 1, 2, false, bf16, shared, shared, 90,
     true},
    {"few_rows_of_8_bits", 48, 128, 128, 128, wgmma, 1, 1, false, e4m3, shared, transposed, 90, true},
    {"few_rows_in_registers", 16, 128, 64, 128, wgmma, 1, 1, false, bf16, fragment, transposed, 90, true},
    {"96_rows", 96, 64, 64, 128, wgmma, 1, 1, false, bf16, shared, transposed, 90, true},
    // What no wgmma can do falls to the instruction for warps, or to plain multiplication.
    {"rows_of_no_block", 68, 64, 64, 128, mma_sync, 4, 1},
    {"few_rows_and_odd_columns", 16, 72, 64, 128, mma_sync, 4, 1},
    {"narrow_parts_of_b_along_n", 64, 80, 64, 256, mma_sync, 4, 2, false, bf16, shared, shared},
    {"part_along_k_off_a_step", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, last_columns},
    {"rows_off_blocks", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, last_rows},
    {"rows_of_other_length", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, halved},
    {"8_bits_across_k", 64, 128, 128, 128, mma_sync, 4, 1, false, e4m3, shared, shared},
    {"8_bits_promoted_too_late", 64, 128, 256, 128, mma_sync, 4, 1, false, e4m3},
    {"threads_of_no_group", 64, 64, 64, 64, mma_sync, 2, 1},
    {"before_hopper", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, shared, transposed, 80},
    {"odd_columns", 64, 60, 64, 128, fma, 0, 0},
    {"f32", 64, 64, 64, 128, fma, 0, 0, false, f32},
};

INSTANTIATE_TEST_SUITE_P(Table, Products, ::testing::ValuesIn(products),
                         [](auto& info) { return std::string(info.param.name); });

// What a thread has of a product by multiply-add.
struct OwnProduct {
  const char* name;
  int m, n, k, threads;
  testing::Operand a, b;
  layout::OwnBlock own;
  DType type = f32;
};

class OwnProducts : public ::testing::TestWithParam<OwnProduct> {};

TEST_P(OwnProducts, AreBlocksOfThreads) {
  const OwnProduct& p = GetParam();
  const auto written = program({p.name, p.m, p.n, p.k, p.threads, fma, 0, 0, false, p.type, p.a, p.b}).ir();
  const auto products = testing::all_of<ir::Gemm>(written->grids.front().body);
  const GemmPlan plan = plan_gemm(*products.at(0), p.threads, {});
  EXPECT_EQ(plan.own.lanes, p.own.lanes);
  EXPECT_EQ(plan.own.rows, p.own.rows);
  EXPECT_EQ(plan.own.columns, p.own.columns);
  EXPECT_EQ(plan.own.rows_in_fours, p.own.rows_in_fours);
  EXPECT_EQ(plan.own.columns_in_fours, p.own.columns_in_fours);
  EXPECT_TRUE(plan.accumulator.is_valid());
  if (p.own.lanes > 0) { EXPECT_EQ(plan.accumulator.register_count(), p.own.rows * p.own.columns); }
}

const OwnProduct own_products[] = {
    {"along_k", 128, 64, 16, 128, shared, transposed, {8, 8, 8, false, false}},
    {"b_across_k", 128, 64, 16, 128, shared, shared, {8, 8, 8, false, true}},
    {"both_across_k", 128, 64, 16, 128, transposed, shared, {8, 8, 8, true, true}},
    {"few_rows", 16, 64, 32, 128, shared, transposed, {32, 4, 2, false, false}},
    {"more_threads", 64, 128, 16, 256, shared, transposed, {16, 4, 8, false, false}},
    {"uneven_fours", 96, 80, 16, 128, transposed, shared, {8, 6, 10, false, false}},
    {"odd_rows", 68, 64, 16, 128, shared, transposed, {32, 17, 2, false, false}},
    {"odd_columns", 64, 60, 16, 128, shared, transposed, {}},
    {"odd_steps", 64, 64, 18, 128, shared, transposed, {}},
    {"part_of_a_tile", 64, 64, 16, 128, columns, transposed, {}},
};

INSTANTIATE_TEST_SUITE_P(Table, OwnProducts, ::testing::ValuesIn(own_products),
                         [](auto& info) { return std::string(info.param.name); });

// Sums of 8-bit products have fewer bits than f32 in the tensor cores, so they are promoted unless the
// program says that they may stay there, or the product is short.
TEST(Products, Of8BitsAreAddedToSumsInF32) {
  for (const auto accumulate : {Accumulate::promoted, Accumulate::tensor_core})
    for (const DType type : {e4m3, bf16}) {
      const auto written = kernel("product", [&] {
                             Tensor C = output("C", {64, 64}, f32);
                             grid(1, {.threads = 128}, [&](Index) {
                               Shared a({64, 64}, type), b({64, 64}, type);
                               fill(a, 0), fill(b, 0);
                               Fragment c({64, 64}, f32, 0);
                               gemm(a, b.T(), c, {.accumulate = accumulate});
                               copy(c, C.at(0, 0));
                             });
                           }).ir();
      const auto* product = testing::all_of<ir::Gemm>(written->grids.front().body).at(0);
      EXPECT_EQ(needs_promotion(*product, plan_gemm(*product, 128, {})),
                type == e4m3 && accumulate == Accumulate::promoted);
    }
}

TEST(Products, HaveAnAccumulatorFor64RowsAnd256Columns) {
  const std::tuple<int, int, int, int> table[] = {
      {64, 256, 128, 1}, {128, 256, 128, 2}, {128, 256, 256, 1}, {256, 128, 256, 2}, {64, 512, 256, 1}};
  for (const auto& [m, n, threads, count] : table) {
    const auto written = program({"", m, n, 64, threads, wgmma, 1, 1}).ir();
    const auto* product = testing::all_of<ir::Gemm>(written->grids.front().body).at(0);
    EXPECT_EQ(accumulators(*product, plan_gemm(*product, threads, {})), count) << m << " x " << n;
  }
}

// 128 registers of sums and as many to promote are more than a thread has.
TEST(Products, AreHalfAsWideWherePromotedSumsWouldNotFitBesideTheirOwn) {
  const std::tuple<int, int, std::vector<int>> table[] = {
      {64, 256, {128, 128}}, {64, 192, {192}}, {128, 128, {128}}, {64, 224, {112, 112}}};
  for (const auto& [m, n, columns] : table) {
    const auto written = program({"", m, n, 128, 128, wgmma, 1, 1, false, e4m3}).ir();
    const auto* product = testing::all_of<ir::Gemm>(written->grids.front().body).at(0);
    EXPECT_EQ(plan_gemm(*product, 128, {}).columns, columns) << m << " x " << n;
  }
}

}  // namespace plan_gemms_test
}  // namespace tegula::passes
