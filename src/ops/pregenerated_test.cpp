#include "ops/pregenerated.hpp"

#include <gtest/gtest.h>

#include <set>

#include "ops/attention/plan.hpp"
#include "ops/gemm/plan.hpp"

namespace tegula::ops {
namespace {

TEST(Pregenerated, HasNoRepetition) {
  std::set<std::string> names;
  for (const lang::Kernel& kernel : pregenerated())
    EXPECT_TRUE(names.insert(kernel.name()).second) << kernel.name();
}

// On any number of processors the plans of large problems lead to kernels that are in the list.
TEST(Pregenerated, HasWhatThePlansChoose) {
  std::set<std::string> names;
  for (const lang::Kernel& kernel : pregenerated()) names.insert(kernel.name());
  for (int processors : {1, 2, 4, 8, 16}) {
    const GemmTiles gemm = plan_gemm({.m = 4096, .n = 4096, .k = 1024, .processors = processors}, {});
    EXPECT_EQ(gemm.m * gemm.n * gemm.k, 256 * 512 * 256) << processors;
    const AttentionPlan plan =
        plan_attention({.heads = 16, .queries = 4096, .keys = 4096, .processors = processors}, {});
    EXPECT_EQ(plan.queries * plan.keys, 256 * 128) << processors;
  }
  EXPECT_TRUE(names.count("gemm_f32_f32_f32_256x512x256"));
  EXPECT_TRUE(names.count("attention_f32_f32_d64_v64_g1_q256_k128_right"));
  EXPECT_TRUE(names.count("block_sparse_f32_f32_d64_v64_b64x64_g1_q64_k64_c1024"));
}

}  // namespace
}  // namespace tegula::ops
