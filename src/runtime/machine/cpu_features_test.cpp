#include "runtime/machine/cpu_features.hpp"

#include <gtest/gtest.h>

#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

TEST(CpuFeatures, TheBestIsSupportedAndNothingBetterIs) {
  const ScopedVariable unset(Variable::isa, std::nullopt);
  const Isa best = best_isa();
  for (const Isa isa : all_isas) EXPECT_EQ(is_supported(isa), isa <= best) << isa_name(isa);
}

TEST(CpuFeatures, TheVariableChooses) {
  for (const Isa isa : all_isas) {
    const ScopedVariable variable(Variable::isa, std::string(isa_name(isa)));
    if (is_supported(isa)) {
      EXPECT_EQ(best_isa(), isa);
    } else {
      EXPECT_ERROR(ArgumentError, "does not support", best_isa());
    }
  }
  const ScopedVariable variable(Variable::isa, "mmx");
  EXPECT_ERROR(ArgumentError, "TEGULA_ISA=mmx: must be portable, avx2 or avx512", best_isa());
}

TEST(CpuFeatures, ASetThatIsAskedForIsAllThatIsUsed) {
  const ScopedVariable variable(Variable::isa, std::string(isa_name(Isa::portable)));
  EXPECT_FALSE(has_tile_registers());
  EXPECT_FALSE(has_products_of_pairs());
  EXPECT_EQ(way_of_bf16_products(), 0);
  EXPECT_FALSE(has_dots_of_bytes());
  EXPECT_FALSE(has_tables_of_bytes());
}

TEST(CpuFeatures, BetterSetsHaveMoreFlags) {
  EXPECT_TRUE(isa_flags(Isa::portable).empty());
  EXPECT_LT(isa_flags(Isa::avx2).size(), isa_flags(Isa::avx512).size());
}

TEST(CpuFeatures, TheSizeOfTheCacheIsPlausible) {
  EXPECT_GE(l2_bytes(), 64u << 10);
  EXPECT_LE(l2_bytes(), 256u << 20);
}

}  // namespace
}  // namespace tegula
