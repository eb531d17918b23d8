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

}  // namespace gemv_test
}  // namespace tegula::ops
