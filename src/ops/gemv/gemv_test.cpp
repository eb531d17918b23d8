// Tiles of a matrix times a vector on a CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/kernel.hpp"
#include "ops/schema/table.hpp"

namespace tegula::ops {
namespace gemv_test {

// What lies outside takes longer than what is inside.
TEST(Gemv, AsksForNoMoreOfAShortRowThanItsVectors) {
  constexpr std::pair<std::int64_t, int> table[] = {{0, 16},    {1, 16},    {64, 64},   {100, 112},
                                                    {500, 512}, {512, 512}, {513, 512}, {4096, 512}};
  for (const auto& [k, piece] : table) {
    const Tensor a = Tensor::empty({100, k}, bf16), x = Tensor::empty({k}, bf16);
    const auto kernels = kernels_by_name(find_schema("gemv"), {{"a", a}, {"x", x}}, {}, Target::cpu());
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_NE(kernels[0].name().find(fmt::format("x{}_", piece)), std::string::npos) << kernels[0].name();
  }
}

// Rows are read in long runs of columns, tiles of which cover few more than there are; where those are few,
// parts of the rows have sums of their own.
TEST(Gemv, ReadsLongRunsOfTheRowsOfATransposedMatrix) {
  struct Row {
    std::int64_t m, k;
    const char* tile;
  };
  constexpr Row table[] = {{8191, 14336, "t2048x4_splits8_"}, {65536, 4097, "t2048x4_splits1_"},
                           {8200, 14336, "t1024x4_splits3_"}, {1, 100, "t16x4_splits1_"},
                           {100, 0, "t112x4_splits1_"},       {100, 100000, "t112x4_splits32_"}};
  for (const auto& [m, k, tile] : table) {
    const Tensor a = Tensor::empty({k, m}, bf16), x = Tensor::empty({k}, bf16);
    const auto kernels =
        kernels_by_name(find_schema("gemv"), {{"a", a}, {"x", x}}, {{"transpose_a", true}}, Target::cpu());
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_NE(kernels[0].name().find(tile), std::string::npos) << kernels[0].name();
  }
}

TEST(Gemv, AddsPartsOfTransposedRows) {
  for (const std::int64_t m : {100, 2049})
    for (const std::int64_t k : {0, 1, 37, 1101}) {
      const Tensor a = Tensor::random_integers({k, m}, f32, 1, -4, 5).to(bf16),
                   x = Tensor::random_integers({k}, f32, 2, -4, 5).to(bf16);
      const OptionValues options = {{"transpose_a", true}, {"out_dtype", std::string("f32")}};
      const Tensor out =
          call_by_name(find_schema("gemv"), {{"a", a}, {"x", x}}, options, Target::cpu()).at("out");
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (std::int64_t e = 0; e < k; ++e) sum += a.get({e, i}) * x.get({e});
        ASSERT_EQ(out.get({i}), sum) << m << " x " << k << ", column " << i;
      }
    }
}

}  // namespace gemv_test
}  // namespace tegula::ops
