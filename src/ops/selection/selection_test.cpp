// Block scores and the choice of the best blocks against their formulas, over one table each.
#include "tegula/ops/selection.hpp"

#include <cmath>

#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace selection_test {

TEST(BlockScores, AgreesWithTheFormula) {
  for (Target target : test_targets())
    for (std::int64_t queries : {0, 1, 37, 130})
      for (std::int64_t keys : {0, 1, 70})
        for (auto [q_block, k_block] :
             {std::pair(1, 1), std::pair(8, 5), std::pair(64, 64), std::pair(100, 7)})
          for (int variant = 0; variant < 4; ++variant) {
            SCOPED_TRACE(std::to_string(queries) + " " + std::to_string(keys) + " " +
                         std::to_string(q_block) + " " + std::to_string(variant));
            const Layout layout = variant == 3 ? Layout::bhsd : Layout::bshd;
            auto shape = [&](std::int64_t tokens, std::int64_t heads) {
              return layout == Layout::bshd ? Shape{2, tokens, heads, 8} : Shape{2, heads, tokens, 8};
            };
            const Planted q(Tensor::random_normal(shape(queries, 4), variant == 1 ? bf16 : f32, 1)),
                k(Tensor::random_normal(shape(keys, 2), q.inside.dtype(), 2));
            BlockScores options{.layout = layout,
                                .q_block_size = q_block,
                                .k_block_size = k_block,
                                .causal = variant % 2 == 1,
                                .per_kv_head = variant < 2,
                                .target = target};
            options.q = q.inside, options.k = k.inside;
            const Tensor exact = formula_of(find_schema("block_scores"), &options).at("out");
            const Planted out(exact.shape(), f32);
            options.out = out.inside;
            block_scores(q.inside, k.inside, options);
            const auto difference = first_difference(out.inside, exact, 1e-5, 1e-5);
            EXPECT_FALSE(difference) << *difference;
            EXPECT_TRUE(out.is_clean_outside());
          }
}

// Means do not depend on how many rows a block has: f32 holds a sum of equal numbers to 24 bits.
TEST(BlockScores, MeansOfLargeBlocksAreAsExactAsOfSmallOnes) {
  std::vector<Target> targets = test_targets();
  if (targets.size() > 1) targets.push_back(Target::emulated_sm90());
  for (Target target : targets)
    for (const int size : {1, 64, 65, 4096, 1 << 18}) {
      if (!(target == Target::cpu()) && size > 4096) continue;
      const Tensor one = Tensor::full({1, 1, 1, 8}, f32, 0.1);
      const TensorRef rows = one.ref().expand({1, size, 1, 8});
      const Tensor scores = block_scores(
          rows, rows, {.q_block_size = size, .k_block_size = size, .scale = 1, .target = target});
      const double exact = 8. * 0.1f * 0.1f;
      EXPECT_NEAR(scores.get({0, 0, 0, 0}) / exact, 1, 1e-6) << target.name() << " " << size;
    }
}

// Scores with many ties, both zeros, infinities and NaN.
Tensor awkward_scores(const Shape& shape, std::uint64_t seed) {
  Tensor scores = Tensor::random_integers(shape, i32, seed, -3, 4).to(f32);
  const double special[] = {-0.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e-40, 3.4e38};
  float* values = scores.data_as<float>();
  for (std::int64_t i = 0; i < scores.nelements(); ++i)
    if (i % 5 == 0) values[i] = static_cast<float>(special[i / 5 % 6]);
  return scores;
}

TEST(TopkBlocks, IsExact) {
  for (Target target : test_targets())
    for (std::int64_t blocks : {0, 1, 6, 40, 260})
      for (std::int64_t count : {0, 1, 3, 40, 301})
        for (int kept = 0; kept < (blocks > 40 ? 1 : 4); ++kept) {
          SCOPED_TRACE(std::to_string(blocks) + " " + std::to_string(count) + " " + std::to_string(kept));
          const Planted scores(awkward_scores({1, 2, 5, blocks}, 3));
          TopkBlocks options{.keep_first = kept % 2 == 1,
                             .keep_diagonal = kept >= 2,
                             .q_block_size = 16,
                             .k_block_size = 8,
                             .key_offset = kept == 2 ? -20 : 9,
                             .target = target};
          const Tensor result = topk_blocks(scores.inside, count, options);
          options.scores = scores.inside, options.count = count;
          const auto difference =
              first_difference(result, formula_of(find_schema("topk_blocks"), &options).at("out"));
          EXPECT_FALSE(difference) << *difference;
        }
}

// Longer ones than a GPU searches whole.
TEST(TopkBlocks, KeepsBlocksOfLongRows) {
  for (Target target : test_targets())
    for (int kept = 0; kept < 4; ++kept) {
      TopkBlocks options{.keep_first = kept % 2 == 1,
                         .keep_diagonal = kept >= 2,
                         .q_block_size = 64,
                         .k_block_size = 16,
                         .key_offset = 100000,
                         .target = target};
      const Tensor scores = awkward_scores({1, 1, 2, 8500}, 3), result = topk_blocks(scores, 5, options);
      options.scores = scores, options.count = 5;
      const auto difference =
          first_difference(result, formula_of(find_schema("topk_blocks"), &options).at("out"));
      EXPECT_FALSE(difference) << kept << ": " << *difference;
    }
}

TEST(TopkBlocks, TiesGoToTheLowerBlock) {
  const Tensor scores = Tensor::from<float>({2, 5, 5, 1, 5}, {1, 1, 1, 5});
  EXPECT_EQ(topk_blocks(scores, 2).values<std::int32_t>(), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(topk_blocks(scores, 4).values<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 4}));
  EXPECT_EQ(topk_blocks(scores, 6).values<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 3, 4, -1}));
}

TEST(TopkBlocks, EndsAtAShareOfTheWeight) {
  using Blocks = std::vector<std::int32_t>;
  const auto logarithms = [](std::vector<float> weights) {
    for (float& weight : weights) weight = std::log(weight);
    return Tensor::from(weights, {1, 1, 1, static_cast<std::int64_t>(weights.size())});
  };
  const Tensor distinct = logarithms({2, 4, 0, 1, 3}), equal = logarithms({1, 1, 1, 1});
  const Tensor infinite = Tensor::from<float>({1, HUGE_VALF, 5, -HUGE_VALF}, {1, 1, 1, 4});
  for (const Target target : test_targets()) {
    const auto chosen = [&](const Tensor& scores, float share, std::int64_t count = 4, bool first = false) {
      return topk_blocks(scores, count, {.keep_first = first, .share = share, .target = target})
          .values<std::int32_t>();
    };
    EXPECT_EQ(chosen(distinct, 0.35f), (Blocks{1, -1, -1, -1}));
    EXPECT_EQ(chosen(distinct, 0.45f), (Blocks{1, 4, -1, -1}));
    EXPECT_EQ(chosen(distinct, 0.95f), (Blocks{0, 1, 3, 4}));
    EXPECT_EQ(chosen(distinct, 1), (Blocks{0, 1, 3, 4}));
    EXPECT_EQ(chosen(distinct, 0.95f, 2), (Blocks{1, 4}));
    // What is always selected comes first, and counts.
    EXPECT_EQ(chosen(distinct, 0.55f, 4, true), (Blocks{0, 1, -1, -1}));
    EXPECT_EQ(chosen(distinct, 0.1f, 4, true), (Blocks{0, -1, -1, -1}));
    EXPECT_EQ(chosen(equal, 0.5f), (Blocks{0, 1, -1, -1}));
    EXPECT_EQ(chosen(infinite, 0.5f), (Blocks{1, -1, -1, -1}));
  }
}

TEST(Selection, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 8, 4, 16}, f32), k = Tensor::zeros({1, 8, 2, 16}, f32);
  expect_refusal([&] { block_scores(q, k, {.q_block_size = 0}); },
                 "block_scores, argument 'q_block_size': expected a block size");
  expect_refusal([&] { block_scores(q, k.slice(3, 0, 4)); },
                 "argument 'k': expected [batch, keys, kv_heads, d] with d = 16, as q");
  expect_refusal([&] { block_scores(q, k, {.out = Tensor::zeros({1, 4, 1, 1}, f32)}); }, "argument 'out'");
  const Tensor scores = Tensor::zeros({1, 1, 2, 3}, f32);
  expect_refusal([&] { topk_blocks(scores.to(f16), 1); },
                 "topk_blocks, argument 'scores': expected dtype f32");
  expect_refusal([&] { topk_blocks(scores, -1); }, "argument 'count': expected a number of blocks");
  expect_refusal([&] { topk_blocks(scores, 1, {.share = 1.5f}); }, "argument 'share': expected a share");
  for (const std::int64_t count : {4097, 1 << 29, 1 << 30})
    expect_refusal([&] { topk_blocks(scores, count); },
                   "argument 'count': expected a number of blocks from 0 to 4096: there are 3, given " +
                       std::to_string(count));
  EXPECT_EQ(topk_blocks(scores, 4096).shape(), (Shape{1, 1, 2, 4096}));
  const Tensor many = Tensor::zeros({1, 1, 1, 5000}, f32);
  EXPECT_EQ(topk_blocks(many, 5000).shape(), many.shape());
  expect_refusal([&] { topk_blocks(many, 5001); }, "from 0 to 5000: there are 5000, given 5001");
  expect_refusal([&] { topk_blocks(scores.select(0, 0), 1); }, "argument 'scores': expected rank 4");
  expect_refusal(
      [&] {
        topk_blocks(scores, 1, {.out = Tensor::zeros({1, 1, 2, 2}, i32)});
      },
      "argument 'out'");
}

}  // namespace selection_test
// By the definition, with single queries and keys as blocks.
TEST(Selection, VerticalSlashIsAttentionToColumnsAndDiagonals) {
  constexpr int queries = 37, keys = 53, heads = 4, q_block = 8, k_block = 16;
  const Tensor q = Tensor::random_normal({1, queries, heads, 16}, f32, 1),
               k = Tensor::random_normal({1, keys, 2, 16}, f32, 2),
               v = Tensor::random_normal({1, keys, 2, 12}, f32, 3);
  const Tensor vertical = Tensor::random_integers({1, heads, 5}, i32, 4, -1, keys + 1),
               slash = Tensor::random_integers({1, heads, 3}, i32, 5, -1, keys);
  const Tensor mask = Tensor::zeros({1, heads, queries, keys}, boolean);
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < queries; ++i) {
      for (int n = 0; n < 5; ++n)
        if (const int column = vertical.at<std::int32_t>(0, h, n); column >= 0 && column < keys)
          mask.at<bool>(0, h, i, column) = true;
      // A diagonal of any query of the block brings whole blocks of keys.
      for (int row = i / q_block * q_block; row < std::min(i / q_block * q_block + q_block, queries); ++row)
        for (int n = 0; n < 3; ++n) {
          const int distance = slash.at<std::int32_t>(0, h, n), key = row + keys - queries - distance;
          if (distance < 0 || key < 0) continue;
          for (int at = key / k_block * k_block; at < std::min(key / k_block * k_block + k_block, keys); ++at)
            mask.at<bool>(0, h, i, at) = true;
        }
    }
  BlockSparseOptions single;
  single.q_block_size = single.k_block_size = 1, single.causal = true, single.mask = mask;
  const AttentionResult expected = block_sparse_attention(q, k, v, single);
  for (const Target target : test_targets()) {
    const AttentionResult got = vertical_slash_attention(
        q, k, v, vertical, slash, {.q_block_size = q_block, .k_block_size = k_block, .target = target});
    EXPECT_LT(error_of(got.out, expected.out).largest, 1e-5) << target.name();
    EXPECT_LT(error_of(got.lse, expected.lse).largest, 1e-5) << target.name();
  }
}

}  // namespace tegula::ops
