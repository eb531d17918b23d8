// The list of passes: what each adds to the plan, and that it can be looked at.
#include "passes/cuda/cuda_passes.hpp"

#include <gtest/gtest.h>

#include "tegula/lang.hpp"

namespace tegula::passes {
namespace cuda_passes_test {

using namespace lang;

lang::Kernel attention() {
  return kernel("attention", [&] {
    Dim N("N");
    Tensor q = input("q", {64, 64}, bf16), x = input("x", {N, 64}, bf16), out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared query({64, 64}, bf16);
      copy(q.at(0, 0), query);
      Fragment sum({64, 64}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index j) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(x.at(j * 64), a);
        copy(x.at(j * 64), b);
        Fragment s({64, 64}, f32, 0), p({64, 64}, bf16);
        gemm(query, a.T(), s);
        copy(s, p);
        gemm(p, b, sum);
      });
      copy(sum, out.at(0, 0));
    });
  });
}

// The passes that changed the plan of the kernel.
std::vector<std::string> effective(const lang::Kernel& kernel, const CudaTarget& target) {
  std::vector<std::string> names;
  plan_for_cuda(*kernel.ir(), target, {}, [&](const PassRun& own) {
    if (own.before != own.after) names.emplace_back(own.pass);
  });
  return names;
}

using Names = std::vector<std::string>;

TEST(CudaPassList, ShowsEveryDecision) {
  EXPECT_EQ(effective(attention(), {90}),
            (Names{"merge_clears", "lower_for_cuda", "specialize_roles", "choose_depths", "choose_stores",
                   "delay_products", "step_parts", "build_schedule", "infer_layouts", "fragment_forms"}));
  EXPECT_EQ(effective(attention(), {80}),
            (Names{"merge_clears", "lower_for_cuda", "copy_rings", "infer_layouts", "fragment_forms"}));
}

TEST(CudaPassList, PlansWhatComputes) {
  const CudaPlan roles = plan_for_cuda(*attention().ir(), {90}),
                 plain = plan_for_cuda(*attention().ir(), {80});
  ASSERT_TRUE(roles.grids[0].roles);
  EXPECT_EQ(&roles.computing(0), &roles.grids[0].consumers.body);
  EXPECT_EQ(&plain.computing(0), &plain.kernel.grids[0].body);
  EXPECT_TRUE(roles.grids[0].schedule);
  EXPECT_TRUE(plain.grids[0].schedule);
  // A fragment is where the consumers' program puts it.
  EXPECT_FALSE(roles.grids[0].layouts.fragments.empty());
  EXPECT_NE(print(roles).find("-- schedule"), std::string::npos);
}

}  // namespace
}  // namespace tegula::passes
