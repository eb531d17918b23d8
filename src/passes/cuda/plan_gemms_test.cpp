// Which instruction multiplies, and how warps or warp groups divide the product.
#include "passes/cuda/plan_gemms.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing.hpp"

namespace tegula::passes {
namespace {

using namespace lang;
using enum GemmInstruction;

enum class Operand { shared, transposed, fragment, columns, reshaped };

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
};

void PrintTo(const Product& p, std::ostream* out) { *out << p.name; }

// The tile as an operand [rows, columns] of the product.
template <class Use>
void with_operand(Operand form, int rows, int columns, DType type, const Use& use) {
  if (form == Operand::fragment) return use(Fragment({rows, columns}, type, 0));
  const bool turned = form == Operand::transposed, part = form == Operand::columns;
  if (form == Operand::reshaped) {
    Shared tile({rows / 2, 2, columns}, type);
    fill(tile, 0);
    return use(tile.reshape({rows, columns}));
  }
  Shared tile({turned ? columns : rows, turned ? rows : part ? 2 * columns : columns}, type);
  fill(tile, 0);
  if (turned) return use(tile.T());
  if (part) return use(tile.slice(all, range(columns, 2 * columns)));
  use(tile);
}

Kernel program(const Product& p) {
  return kernel("product", [&] {
    Tensor C = output("C", {p.m, p.n}, f32);
    grid(1, {.threads = p.threads}, [&](Index) {
      Fragment c({p.m, p.n}, f32, 0);
      with_operand(p.a, p.m, p.k, p.type, [&](const auto& a) {
        with_operand(p.b, p.k, p.n, p.type, [&](const auto& b) { gemm(a, b, c); });
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
  EXPECT_EQ(plan.k, p.instruction == wgmma && p.type.bits() == 8 ? 32 : 16);
}

const Product products[] = {
    {"one_group", 64, 128, 64, 128, wgmma, 1, 1},
    {"two_groups_by_rows", 128, 256, 64, 256, wgmma, 2, 1},
    {"two_groups_by_columns", 64, 256, 64, 256, wgmma, 1, 2},
    {"two_accumulators_a_group", 256, 128, 64, 256, wgmma, 2, 1},
    {"a_transposed", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, Operand::transposed},
    {"b_along_n", 64, 128, 64, 128, wgmma, 1, 1, false, bf16, Operand::shared, Operand::shared},
    {"b_along_n_divided", 64, 128, 64, 256, wgmma, 1, 2, false, f16, Operand::shared, Operand::shared},
    {"a_in_registers", 64, 128, 64, 128, wgmma, 1, 1, true, bf16, Operand::fragment},
    {"a_in_registers_divided_by_columns", 64, 256, 64, 256, wgmma, 1, 2, false, bf16, Operand::fragment},
    {"8_bits_along_k", 64, 128, 128, 128, wgmma, 1, 1, false, e4m3},
    // What no wgmma can do falls to the instruction for warps, or to plain multiplication.
    {"rows_of_half_a_group", 32, 64, 64, 128, mma_sync, 2, 2},
    {"96_rows", 96, 64, 64, 128, mma_sync, 4, 1},
    {"narrow_parts_of_b_along_n", 64, 64, 64, 256, mma_sync, 4, 2, false, bf16, Operand::shared,
     Operand::shared},
    {"part_of_a_tile", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, Operand::columns},
    {"reshaped_tile", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, Operand::reshaped},
    {"8_bits_across_k", 64, 128, 128, 128, mma_sync, 4, 1, false, e4m3, Operand::shared, Operand::shared},
    {"8_bits_promoted_too_late", 64, 128, 256, 128, mma_sync, 4, 1, false, e4m3},
    {"threads_of_no_group", 64, 64, 64, 64, mma_sync, 2, 1},
    {"before_hopper", 64, 128, 64, 128, mma_sync, 4, 1, false, bf16, Operand::shared, Operand::transposed,
     80},
    {"odd_columns", 64, 60, 64, 128, fma, 0, 0},
    {"f32", 64, 64, 64, 128, fma, 0, 0, false, f32},
};

INSTANTIATE_TEST_SUITE_P(Table, Products, ::testing::ValuesIn(products),
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

}  // namespace
}  // namespace tegula::passes
