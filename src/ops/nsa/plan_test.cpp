// Attention over selected blocks on GPUs: the tiles of the plan, which calls take one pass, and what these
// give of wide features and small blocks.
#include "ops/nsa/plan.hpp"

#include "ops/nsa/backward.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/gradients.hpp"
#include "tegula/explain.hpp"

namespace tegula::ops {
namespace nsa_plan_test {

struct Planned {
  int group, dim, dim_v, block;
  int pack, queries, keys, fewest;
};

// Rows of 64 or, where many tiles share keys, of as many warp groups as have registers.
TEST(NsaOnGpus, TilesAreWholeWarpGroups) {
  for (const Planned& row : std::vector<Planned>{{16, 128, 128, 64, 16, 12, 64, 1},
                                                 {4, 128, 128, 64, 4, 48, 64, 5},
                                                 {16, 192, 128, 64, 16, 8, 64, 1},
                                                 {4, 192, 192, 64, 4, 32, 64, 5},
                                                 {8, 256, 256, 64, 8, 16, 64, 3},
                                                 {1, 128, 128, 64, 1, 64, 64, 20},
                                                 {8, 128, 128, 32, 8, 8, 64, 1},
                                                 {16, 128, 128, 48, 16, 4, 48, 1},
                                                 {16, 512, 512, 64, 16, 4, 64, 1}}) {
    SCOPED_TRACE(
        fmt::format("group {} features {}/{} blocks of {}", row.group, row.dim, row.dim_v, row.block));
    NsaProblem problem;
    problem.group = row.group, problem.dim = row.dim, problem.dim_v = row.dim_v, problem.block = row.block;
    problem.tokens = 16384, problem.all_tokens = 4 * problem.tokens;
    const NsaPlan plan = plan_nsa_on_gpu(problem, bf16, {});
    EXPECT_EQ(plan.pack, row.pack);
    EXPECT_EQ(plan.queries, row.queries);
    EXPECT_EQ(plan.keys, row.keys);
    EXPECT_EQ(plan.fewest, row.fewest);
  }
}

struct Row {
  int block;
  std::int64_t group, dim, dim_v;
  bool one_pass;
};

struct Given {
  Tensor q, k, v, dout, indices, lse;
  NsaSelectedOptions options;

  Given(const Row& row, std::int64_t tokens)
      : q(Tensor::random_normal({1, tokens, row.group, row.dim}, bf16, 1)),
        k(Tensor::random_normal({1, tokens, 1, row.dim}, bf16, 2)),
        v(Tensor::random_normal({1, tokens, 1, row.dim_v}, bf16, 3)),
        dout(Tensor::random_normal({1, tokens, row.group, row.dim_v}, bf16, 4)),
        indices(Tensor::random_integers({1, tokens, 1, 3}, i32, 5, -1, (tokens - 1) / row.block + 1)),
        lse(Tensor::zeros({1, row.group, tokens}, f32)) {
    options.block_size = row.block;
  }
};

TEST(NsaOnGpus, GradientsTakeOnePassAndNoSlowerWay) {
  for (const Row& row : std::vector<Row>{{64, 16, 128, 128, true},
                                         {64, 16, 192, 128, true},
                                         {64, 8, 256, 256, true},
                                         {32, 8, 128, 128, true},
                                         {16, 4, 128, 128, true},
                                         {64, 1, 128, 128, true},
                                         {8, 4, 128, 128, false},
                                         {64, 4, 272, 128, false}}) {
    SCOPED_TRACE(
        fmt::format("group {} features {}/{} blocks of {}", row.group, row.dim, row.dim_v, row.block));
    Given in(row, 1001);
    in.options.target = Target::cuda();
    const NsaSelectedBackward op{in.options, {}, in.dout, in.q, in.k, in.v, in.indices, in.dout, in.lse};
    const PlannedCall call(nsa_selected_attention_backward_schema(), op, BoundCall::Memory::unused);
    const NsaBackwardCall backward = nsa_backward_call(Bound<NsaSelectedBackward>(call.bound));
    EXPECT_EQ(takes_one_pass(backward), row.one_pass);
    if (!row.one_pass || row.block == 64) continue;
    const lang::Kernel kernel = nsa_one_pass_kernel(one_pass_kernel(backward));
    for (const std::string& note : explain(kernel, Target::cuda()).notes)
      for (const char* slow : {"no roles: ", "mma.sync: ", "multiply-add: "})
        EXPECT_EQ(note.find(slow), std::string::npos) << note;
  }
}

void expect_one_pass(const Row& row, std::int64_t tokens, Target target) {
  Given in(row, tokens);
  in.options.target = target;
  const NsaSelectedResult forward =
      reference::nsa_selected_attention(in.q, in.k, in.v, in.indices, in.options, bf16);
  const Tensor out = forward.out.to(bf16), lse = forward.lse.to(f32);
  const NsaSelectedBackward op{in.options, {}, in.dout, in.q, in.k, in.v, in.indices, out, lse};
  PlannedCall call(nsa_selected_attention_backward_schema(), op);
  const NsaBackwardCall backward = nsa_backward_call(Bound<NsaSelectedBackward>(call.bound));
  run_one_pass(backward, one_pass_kernel(backward), 1024, call.launch);
  const auto by_formula = [&](DType steps) {
    return reference::nsa_selected_attention_backward(in.dout, in.q, in.k, in.v, in.indices, in.options, {},
                                                      steps);
  };
  const NsaSelectedGradients exact = by_formula(f64), plain = by_formula(bf16);
  expect_gradients(gradients_of(call.bound), exact, plain, bf16);
}

TEST(NsaOnGpus, OnePassHasWideFeaturesAndSmallBlocks) {
  expect_one_pass({16, 4, 32, 16, true}, 50, Target::interpreter());
  if (!(resolve(Target::automatic()) == Target::interpreter()))
    expect_one_pass({32, 4, 192, 128, true}, 70, Target::emulated_sm90());
}

}  // namespace nsa_plan_test
}  // namespace tegula::ops
