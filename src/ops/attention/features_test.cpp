// Which way attention takes on Hopper GPUs whatever its features: roles and wgmma, also where tensors have no
// width that tensor cores multiply.
#include <gtest/gtest.h>

#include "ops/attention/attention.hpp"
#include "ops/attention/backward_plan.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/schema/example.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/explain.hpp"
#include "tegula/tensor.hpp"

namespace tegula::ops {
namespace features_test {

struct Features {
  std::int64_t dim, dim_v;
};

std::vector<Features> table() {
  std::vector<Features> rows{{1, 1}, {33, 33}, {100, 65}, {192, 128}, {72, 200}, {511, 40}};
  const std::int64_t step = tests_all_rows() ? 8 : 104;
  for (std::int64_t dim = 8; dim <= 512; dim += step) rows.push_back({dim, dim});
  return rows;
}

class AttentionFeatures : public ::testing::TestWithParam<Features> {};

TEST_P(AttentionFeatures, AreMultipliedByWarpGroups) {
  const auto [dim, dim_v] = GetParam();
  const std::int64_t tokens = 2048, heads = 4, kv_heads = 2;
  std::map<std::string, Tensor> inputs{{"q", Tensor::empty({1, tokens, heads, dim}, bf16)},
                                       {"k", Tensor::empty({1, tokens, kv_heads, dim}, bf16)},
                                       {"v", Tensor::empty({1, tokens, kv_heads, dim_v}, bf16)}};
  for (const char* op : {"attention", "attention_backward"}) {
    std::string text;
    for (const Explanation& kernel : explain(op, inputs, {{"causal", "true"}}, Target::cuda()))
      text += kernel.text();
    EXPECT_NE(text.find("roles: "), std::string::npos) << text;
    for (const char* slower : {"mma.sync", "multiply-add", "strides"})
      EXPECT_EQ(text.find(slower), std::string::npos) << text;
    inputs.emplace("out", Tensor::empty({1, tokens, heads, dim_v}, bf16));
    inputs.emplace("dout", Tensor::empty({1, tokens, heads, dim_v}, bf16));
    inputs.emplace("lse", Tensor::empty({1, heads, tokens}, f32));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionFeatures, ::testing::ValuesIn(table()), [](const auto& info) {
  return "d" + std::to_string(info.param.dim) + "_v" + std::to_string(info.param.dim_v);
});

TEST(PackedTiles, AreListedWhereTheLongestSequenceIsFarFromTheMean) {
  EXPECT_FALSE(should_list_tiles(16384, 4, 4096, 192)) << "even ones";
  EXPECT_FALSE(should_list_tiles(4096, 1, 4096, 192)) << "one";
  EXPECT_TRUE(should_list_tiles(16384, 129, 8192, 192)) << "one long, 128 of 64";
  EXPECT_TRUE(should_list_tiles(16384, 256, 16384, 64)) << "no bound is known";
}

TEST(KeyShares, AreTakenWhereTilesAreFew) {
  EXPECT_TRUE(should_share_keys(16, 131072, 16, 8, 32)) << "a query of each sequence";
  EXPECT_TRUE(should_share_keys(576, 131072, 65, 8, 32)) << "and many of one";
  EXPECT_FALSE(should_share_keys(16384, 16384, 4, 4, 192)) << "even ones, of few heads";
  EXPECT_FALSE(should_share_keys(512, 65536, 1, 1, 128)) << "one sequence: splits";
  EXPECT_FALSE(are_uneven(16 * 8192, 16, 8192));
  EXPECT_TRUE(are_uneven(16 * 8192, 16, 16 * 8192)) << "no bound is known";
}

// Keys are read once for the heads of a group, however many these are.
TEST(GroupsOfFewQueries, ShareTiles) {
  const auto heads_of_tile = [](std::int64_t group, std::int64_t queries) {
    const AttentionProblem problem{.heads = 2 * group,
                                   .group = group,
                                   .queries = queries,
                                   .keys = 8192,
                                   .all_queries = queries,
                                   .seen = 8192,
                                   .dim = 128,
                                   .dim_v = 128};
    return plan_attention_on_gpu(problem, bf16, {}).pack;
  };
  for (const auto& [group, heads] : {std::pair(1, 1), {3, 4}, {4, 4}, {7, 8}, {12, 16}, {64, 64}, {71, 64}})
    EXPECT_EQ(heads_of_tile(group, 1), heads) << group;
  EXPECT_EQ(heads_of_tile(3, 32), 4) << "two tiles instead of three";
  EXPECT_EQ(heads_of_tile(3, 64), 1) << "tiles that are full";
}

// Blocks that have different numbers of steps and add in turn meet the heads of a group at the same time.
TEST(GradientsOfGroups, MeetAllHeadsOfATileUnderACausalMask) {
  AttentionProblem problem{
      .heads = 64, .group = 8, .queries = 2048, .keys = 2048, .all_queries = 2048, .dim = 128, .dim_v = 128};
  BackwardTraits traits{.mask = BackwardMask::causal};
  const BackwardPlan causal = plan_attention_backward_on_gpu(problem, bf16, {}, traits);
  EXPECT_TRUE(causal.rows_first);
  EXPECT_EQ(causal.splits, 2) << "blocks for two rounds";
  AttentionProblem long_one = problem;
  long_one.queries = long_one.keys = long_one.all_queries = 8192;
  EXPECT_FALSE(plan_attention_backward_on_gpu(long_one, bf16, {}, traits).rows_first) << "they drift apart";
  traits.mask = BackwardMask::none;
  EXPECT_FALSE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).rows_first);
  traits = {.mask = BackwardMask::causal, .deterministic = false};
  EXPECT_FALSE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).rows_first) << "no turns";
  traits.deterministic = true, problem.group = 1;
  EXPECT_FALSE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).rows_first) << "one head";
}

// Of one round the blocks with most heads are all that counts.
TEST(GradientsOfGroups, HaveFewHeadsInEachPartOfOneRound) {
  const auto parts = [](std::int64_t group, std::int64_t sequences) {
    const AttentionProblem problem{.sequences = sequences,
                                   .heads = group,
                                   .group = group,
                                   .queries = 1024,
                                   .keys = 1024,
                                   .all_queries = sequences * 1024,
                                   .dim = 128,
                                   .dim_v = 128};
    return plan_attention_backward_on_gpu(problem, bf16, {}, {.mask = BackwardMask::causal}).splits;
  };
  EXPECT_EQ(parts(33, 1), 17) << "of two heads, not of three";
  EXPECT_EQ(parts(32, 1), 16);
  EXPECT_EQ(parts(71, 4), 8) << "several rounds";
}

// Calls of few blocks of keys, whose gradients one pass sums: with 64 and 128 features as they are, between
// them filled up to 128.
TEST(GradientsOfFewBlocks, TakeOnePassUpTo128Features) {
  const BackwardTraits traits;
  for (const auto& [dim, padded] : {std::pair(64, 64), {65, 128}, {80, 128}, {127, 128}, {128, 128}}) {
    AttentionProblem problem{
        .heads = 8, .group = 4, .queries = 4096, .keys = 4096, .all_queries = 4096, .dim = dim, .dim_v = dim};
    EXPECT_EQ(pads_to_one_pass(problem, bf16, {}, traits), dim != padded) << dim;
    EXPECT_FALSE(pads_to_one_pass(problem, f32, {}, traits)) << dim;
    EXPECT_FALSE(pads_to_one_pass(problem, bf16, {64, 64}, traits)) << dim;
    EXPECT_FALSE(pads_to_one_pass(problem, bf16, {}, {.hopper = false})) << dim;
    problem.dim = problem.dim_v = padded;
    EXPECT_TRUE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).one_pass) << dim;
  }
}

// Tiles of two passes have 96 features there.
TEST(GradientsOfFewFeatures, TakeOnePassWithManyBlocksToo) {
  const AttentionProblem problem{
      .heads = 32, .group = 1, .queries = 4096, .keys = 4096, .all_queries = 4096, .dim = 96, .dim_v = 96};
  EXPECT_TRUE(pads_to_one_pass(problem, bf16, {}, {.features = 72}));
  EXPECT_FALSE(pads_to_one_pass(problem, bf16, {}, {.features = 96}));
  EXPECT_FALSE(pads_to_one_pass(problem, bf16, {}, {.mask = BackwardMask::packed, .features = 72}));
}

TEST(GradientsOfFewBlocks, DivideTheQueriesOfAHead) {
  BackwardTraits traits;
  AttentionProblem problem{
      .heads = 4, .group = 1, .queries = 4096, .keys = 257, .all_queries = 4096, .dim = 128, .dim_v = 128};
  const BackwardPlan few = plan_attention_backward_on_gpu(problem, bf16, {}, traits);
  EXPECT_EQ(few.row_splits, 8) << "12 blocks";
  EXPECT_EQ(few.splits, 8) << "no group to divide";
  traits.mask = BackwardMask::causal;
  EXPECT_EQ(plan_attention_backward_on_gpu(problem, bf16, {}, traits).row_splits, 1) << "fewer steps";
  traits.mask = BackwardMask::none;
  problem.group = 4;
  const BackwardPlan grouped = plan_attention_backward_on_gpu(problem, bf16, {}, traits);
  EXPECT_EQ(grouped.splits, 4 * grouped.row_splits);
  problem.queries = 200;
  EXPECT_EQ(plan_attention_backward_on_gpu(problem, bf16, {}, traits).row_splits, 1) << "few tiles";
  problem.queries = 4096, problem.dim = 192;
  EXPECT_GT(plan_attention_backward_on_gpu(problem, bf16, {}, traits).row_splits, 1);
  problem.keys = 4096, problem.group = 1, problem.heads = 8;
  EXPECT_EQ(plan_attention_backward_on_gpu(problem, bf16, {}, traits).row_splits, 1) << "256 blocks";
}

// Then dq needs no sum in memory.
TEST(GradientsOfFewKeys, AreThoseOfOneBlock) {
  BackwardTraits traits{.mask = BackwardMask::causal};
  AttentionProblem problem{
      .sequences = 64, .heads = 16, .group = 4, .queries = 128, .keys = 128, .dim = 128, .dim_v = 128};
  const BackwardPlan alone = plan_attention_backward_on_gpu(problem, bf16, {}, traits);
  EXPECT_TRUE(alone.alone && alone.one_pass);
  EXPECT_FALSE(alone.ordered) << "there is nobody to wait for";
  problem.queries = 4096;
  EXPECT_FALSE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).alone) << "most see no key";
  traits.deterministic = false, traits.mask = BackwardMask::packed;
  EXPECT_FALSE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).alone);
  traits.mask = BackwardMask::none, problem.keys = 129;
  EXPECT_FALSE(plan_attention_backward_on_gpu(problem, bf16, {}, traits).alone);
}

// What bounds a call that no choice of tiles helps is said by the call.
std::string plan_notes(const std::string& call, const OperatorSchema& schema = attention_schema()) {
  const ExampleCall example = ExampleCall::parse(schema, call + " kv_heads=2 group=4 bf16");
  std::string words;
  for (const std::string& note :
       listed_by_name(schema, example.described(schema), example.options, Target::cuda()).notes)
    words += note + "\n";
  return words;
}

TEST(AttentionNotes, SayWhatBoundsACall) {
  const std::string long_call = "batch=1 queries=8192 keys=8192 ", wide = "d=128 d_v=128 ";
  EXPECT_EQ(plan_notes(long_call + wide + "causal"), "");
  EXPECT_NE(plan_notes(long_call + wide + "softcap=30").find("tangent"), std::string::npos);
  EXPECT_NE(plan_notes(long_call + "d=40 d_v=40").find("exponentials"), std::string::npos);
  EXPECT_NE(plan_notes("batch=4 queries=1024 keys=1024 causal " + wide).find("begin and end"),
            std::string::npos);
  EXPECT_NE(plan_notes("batch=1 queries=4096 keys=4096 causal left=255 " + wide), "");
  EXPECT_EQ(plan_notes("batch=8 queries=1 keys=4096 " + wide), "");
}

TEST(AttentionNotes, SayThatSequencesAreShorterThanTiles) {
  const auto packed = [](const std::string& sequences) {
    return "sequences=" + sequences +
           " queries=16000 keys=16000 d=128 d_v=128 causal cu_seqlens_q cu_seqlens_k";
  };
  for (const OperatorSchema* schema : {&attention_schema(), &attention_backward_schema()}) {
    EXPECT_NE(plan_notes(packed("1000"), *schema).find("16 tokens on the mean"), std::string::npos);
    EXPECT_EQ(plan_notes(packed("10"), *schema).find("on the mean"), std::string::npos);
  }
}

}  // namespace features_test
}  // namespace tegula::ops
