// What the sweep over tables does not show of the operators of DeepSeek sparse attention.
#include <fmt/format.h>

#include <cstring>

#include "ops/schema/example.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace latent_test {

// Many ties, both zeros, infinities and NaN.
Tensor awkward_scores(const Shape& shape) {
  Tensor scores = Tensor::random_integers(shape, i32, 3, -3, 4).to(f32);
  const double special[] = {-0.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e-40, 3.4e38};
  float* values = scores.data_as<float>();
  for (std::int64_t i = 0; i < scores.nelements(); ++i)
    if (i % 5 == 0) values[i] = static_cast<float>(special[i / 5 % 6]);
  return scores;
}

TEST(TopkSelect, IsExactOfAwkwardScores) {
  for (const Target target : test_targets())
    for (const std::int64_t columns : {1, 40, 1100, 9000})
      for (const std::int64_t count : {1, 3, 40, 301}) {
        const Planted scores(awkward_scores({3, columns}));
        const Tensors inputs{{"scores", scores.inside}};
        const OptionValues options{{"count", count}};
        const OperatorSchema& schema = find_schema("topk_select");
        EXPECT_EQ(
            faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))), "")
            << columns << " " << count;
      }
}

// Digits end where no key is left to tell apart.
TEST(TopkSelect, IsExactOfDistinctScores) {
  const OperatorSchema& schema = find_schema("topk_select");
  for (const Target target : test_targets())
    for (const double width : {1e-6, 1.0})
      for (const std::int64_t count : {1, 100, 2500, 4096}) {
        const Tensors inputs{{"scores", Tensor::random_uniform({2, 9000}, f32, 5, 1, 1 + width)}};
        const OptionValues options{{"count", count}};
        EXPECT_EQ(
            faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))), "")
            << width << " " << count;
      }
}

// Rows that no list names may hold anything, and lists may name nothing.
TEST(SparseMla, LooksAtListedRowsOnly) {
  for (const Target target : test_targets()) {
    const Tensor q = Tensor::random_normal({2, 3, 12}, f32, 1),
                 kv = Tensor::random_normal({6, 1, 12}, f32, 2);
    copy_elements(Tensor::full({12}, f32, std::nan("")), kv.select(0, 4).select(0, 0));
    copy_elements(Tensor::full({12}, f32, std::nan("")), kv.select(0, 0).select(0, 0));
    const Tensor lists = Tensor::from<std::int32_t>({-1, 3, 9, 1, -5, 6, -1, 100}, {2, 1, 4});
    const auto [out, lse] = sparse_mla(q, kv, lists, {.d_v = 8, .target = target});
    for (std::int64_t h = 0; h < 3; ++h) {
      EXPECT_TRUE(std::isfinite(lse.get({0, h})) && std::isfinite(out.get({0, h, 7})));
      EXPECT_EQ(lse.get({1, h}), -HUGE_VAL);
      EXPECT_EQ(out.get({1, h, 0}), 0);
    }
  }
}

// Numbers of rows come in parts of 2048 where heads are few.
TEST(SparseMla, TakesListsOfAnyLength) {
  const OperatorSchema& schema = find_schema("sparse_mla");
  for (const Target target : test_targets())
    for (const std::int64_t entries : {257, 2048, 2049, 4100}) {
      const Tensor kv = Tensor::random_normal({1, 300, 1, 48}, bf16, 2);
      const Tensors inputs{
          {"q", Tensor::random_normal({1, 2, 3, 48}, bf16, 1)},
          {"kv", kv},
          {"indices", Tensor::random_integers({1, 2, 1, entries}, i32, 3, -20, 320)},
          {"counts", Tensor::from<std::int32_t>({static_cast<std::int32_t>(entries), 130}, {1, 2, 1})}};
      const OptionValues options{{"d_v", 32}, {"splits", 1}};
      EXPECT_EQ(faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))),
                "")
          << entries;
    }
}

// The rows of DeepSeek's models: 576 or 512 features, of which 512 are values, here of two sources.
TEST(SparseMla, TakesRowsOf576AndOf512Features) {
  for (const char* name : {"sparse_mla", "sparse_mla_backward"})
    for (const char* d : {"576", "512"})
      for (const Target target : test_targets()) {
        const OperatorSchema& schema = find_schema(name);
        const ExampleCall call = ExampleCall::parse(
            schema, fmt::format("queries=2 keys=80 kv_heads=1 group=5 d={} d_v=512 bf16 entries=70 "
                                "sinks:f32 more_kv more_indices more_keys=20 more_entries=9",
                                d));
        const Tensors inputs = call.inputs(schema, 5);
        EXPECT_EQ(faults_of(judge_call(schema, inputs, call.options,
                                       call_by_name(schema, inputs, call.options, target))),
                  "")
            << name << d;
      }
}

// A query that sees no row has the sum of its sink alone, whose gradient is that of lse.
TEST(SparseMla, SeesTheSinkWhereItSeesNoRow) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor sinks = Tensor::from<float>({1.5F, -2, -infinity}, {3});
  for (const Target target : test_targets()) {
    const Tensor q = Tensor::random_normal({2, 3, 12}, f32, 1),
                 kv = Tensor::random_normal({9, 1, 12}, f32, 2);
    const Tensor lists = Tensor::from<std::int32_t>({3, -1, -1, 9}, {2, 1, 2});
    const SparseMlaOptions options{.d_v = 8, .sinks = sinks, .target = target};
    const auto [out, lse] = sparse_mla(q, kv, lists, options);
    const Tensor dout = Tensor::random_normal({2, 3, 8}, f32, 3), dlse = Tensor::zeros({2, 3}, f32);
    for (std::int64_t h = 0; h < 3; ++h) dlse.at<float>(1, h) = 0.5F;
    SparseMlaBackwardOptions gradients;
    gradients.dlse = dlse;
    const SparseMlaGradients all = sparse_mla_backward(dout, q, kv, lists, out, lse, options, gradients);
    for (std::int64_t h = 0; h < 3; ++h) {
      EXPECT_EQ(lse.at<float>(1, h), sinks.at<float>(h));
      EXPECT_EQ(out.at<float>(1, h, 0), 0);
      EXPECT_EQ(all.dq.at<float>(1, h, 0), 0);
    }
    EXPECT_EQ(all.dsinks.at<float>(2), 0);
  }
}

// Lists of few queries are divided among blocks, each source by itself.
TEST(SparseMlaBackward, DividesListsOfBothSources) {
  const OperatorSchema& schema = find_schema("sparse_mla_backward");
  for (const Target target : test_targets())
    for (const std::int64_t more : {7, 64, 150, 300}) {
      const ExampleCall call = ExampleCall::parse(
          schema,
          "queries=1 keys=90 kv_heads=2 group=3 d=24 d_v=16 bf16 entries=200 sinks:f32 dlse more_kv "
          "more_indices more_keys=70 more_entries=" +
              std::to_string(more));
      const Tensors inputs = call.inputs(schema, 5),
                    first = call_by_name(schema, inputs, call.options, target);
      EXPECT_EQ(faults_of(judge_call(schema, inputs, call.options, first)), "") << more;
      const Tensors again = call_by_name(schema, inputs, call.options, target);
      for (const auto& [name, gradient] : first) EXPECT_TRUE(equal(again.at(name), gradient)) << name;
    }
}

TEST(SparseMlaBackward, IsTheSameInEveryRun) {
  const Target target = test_targets().back();
  const Tensor q = Tensor::random_normal({40, 4, 12}, f32, 1), kv = Tensor::random_normal({9, 1, 12}, f32, 2),
               dout = Tensor::random_normal({40, 4, 8}, f32, 3);
  const Tensor lists = Tensor::random_integers({40, 1, 7}, i32, 4, -1, 9);
  const SparseMlaOptions options{.d_v = 8, .target = target};
  const auto [out, lse] = sparse_mla(q, kv, lists, options);
  const SparseMlaGradients first = sparse_mla_backward(dout, q, kv, lists, out, lse, options);
  for (int run = 0; run < 3; ++run)
    EXPECT_TRUE(equal(sparse_mla_backward(dout, q, kv, lists, out, lse, options).dkv, first.dkv));
}

// Views of the 656 bytes of a record of DeepSeek-V3.2, here with fewer values: 128, 4 bytes of a scale, 16
// features.
TEST(SparseMlaDecode, TakesViewsOfRecords) {
  constexpr std::int64_t records = 10, d_v = 128, bytes = d_v + 4 + 32;
  const Tensor cache = Tensor::zeros({records, bytes}, u8);
  auto* at = cache.data_as<std::uint8_t>();
  const TensorRef values(at, e4m3, {records, d_v}, {bytes, 1}),
      scales(at + d_v, f32, {records, 1}, {bytes / 4, 1}),
      ropes(at + d_v + 4, bf16, {records, 16}, {bytes / 2, 1});
  copy_elements(Tensor::random_normal({records, d_v}, e4m3, 1), values);
  copy_elements(Tensor::random_uniform({records, 1}, f32, 2, 0.5, 1.5), scales);
  copy_elements(Tensor::random_normal({records, 16}, bf16, 3), ropes);
  const auto owned = [&](const TensorRef& view) { return Tensor::adopt(view, nullptr); };
  const Tensors inputs{{"q", Tensor::random_normal({2, 3, d_v + 16}, bf16, 4)},
                       {"values", owned(values)},
                       {"scales", owned(scales)},
                       {"ropes", owned(ropes)},
                       {"indices", Tensor::from<std::int32_t>({3, 9, -1, 0, 1, 10}, {2, 3})}};
  const OperatorSchema& schema = find_schema("sparse_mla_decode");
  for (const Target target : test_targets())
    EXPECT_EQ(faults_of(judge_call(schema, inputs, {}, call_by_name(schema, inputs, {}, target))), "");
}

// The fields of 584 bytes a record of DeepSeek-V4 in pages, of which each is `between` bytes after the one
// before: 448 values and 64 features in bf16 of every record, then 8 bytes of each, of which 7 are exponents.
struct PagesOf584 {
  Tensor cache;
  TensorRef values, scales, ropes;

  PagesOf584(std::int64_t pages, std::int64_t page, std::int64_t between)
      : cache(Tensor::full({pages * between}, u8, 255)) {  // a NaN, as value and as exponent
    auto* at = cache.data_as<std::uint8_t>();
    values = TensorRef(at, e4m3, {pages, page, 448}, {between, 576, 1});
    ropes = TensorRef(at + 448, bf16, {pages, page, 64}, {between / 2, 288, 1});
    scales = TensorRef(at + 576 * page, u8, {pages, page, 7}, {between, 8, 1});
    copy_elements(Tensor::random_normal(values.shape, e4m3, 1), values);
    copy_elements(Tensor::random_normal(ropes.shape, bf16, 2), ropes);
    copy_elements(Tensor::random_integers(scales.shape, i32, 3, 124, 130).to(u8), scales);
  }
  Tensors inputs(std::int64_t queries, std::int64_t heads, std::int64_t entries) const {
    const auto owned = [&](const TensorRef& view) { return Tensor::adopt(view, cache.owner()); };
    const auto records = static_cast<int>(values.size(0) * values.size(1));
    return {{"q", Tensor::random_normal({queries, heads, 512}, bf16, 4)},
            {"values", owned(values)},
            {"scales", owned(scales)},
            {"ropes", owned(ropes)},
            {"indices", Tensor::random_integers({queries, entries}, i32, 5, -70, records + 70)}};
  }
};

TEST(SparseMlaDecode, TakesViewsOfRecordsOf584Bytes) {
  const OperatorSchema& schema = find_schema("sparse_mla_decode");
  std::vector<Target> targets = test_targets();
  if (targets.size() > 1) targets.push_back(Target::emulated_sm90());
  for (const auto& [pages, page, more] : {std::tuple(3, 64, 0), std::tuple(4, 64, 192), std::tuple(3, 16, 8),
                                          std::tuple(5, 3, 2), std::tuple(40, 1, 0)})
    for (const Target target : targets) {
      const Tensors inputs = PagesOf584(pages, page, 584 * page + more).inputs(2, 5, 90);
      const OptionValues options{{"ropes_are_values", true}};
      EXPECT_EQ(faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))),
                "")
          << page << " " << target.name();
    }
}

TEST(SparseMlaDecode, TakesCachesWithoutRecords) {
  const OperatorSchema& schema = find_schema("sparse_mla_decode");
  for (const auto& [pages, page] : {std::pair(0, 16), std::pair(3, 0)}) {
    const Tensors inputs = PagesOf584(pages, page, 584 * page).inputs(2, 5, 9);
    const OptionValues options{{"ropes_are_values", true}};
    for (const Target target : test_targets())
      EXPECT_EQ(faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))),
                "")
          << pages << " " << target.name();
  }
}

// Pages of other records, which are not one behind the other, are read where they are.
TEST(SparseMlaDecode, TakesPagesFarApart) {
  const OperatorSchema& schema = find_schema("sparse_mla_decode");
  const ExampleCall call = ExampleCall::parse(
      schema, "...=4,8 in_8_bits=32 groups=2 ropes:bf16 d_rope=16 d=48 queries=2 heads=3 entries=30");
  Tensors inputs = call.inputs(schema, 3);
  for (const char* name : {"values", "scales", "ropes"}) {
    const Tensor near = inputs.at(name);
    inputs.insert_or_assign(name, Planted(near).inside);
  }
  for (const Target target : test_targets())
    EXPECT_EQ(faults_of(judge_call(schema, inputs, {}, call_by_name(schema, inputs, {}, target))), "");
}

TEST(SparseMlaDecode, RefusesWrongRecords) {
  const OperatorSchema& schema = find_schema("sparse_mla_decode");
  const auto refused = [&](const std::string& text) {
    return refusal([&] {
      const ExampleCall call = ExampleCall::parse(schema, text);
      call_by_name(schema, call.inputs(schema, 3), call.options, Target::interpreter());
    });
  };
  const std::string lists = " queries=1 heads=2 entries=5 ";
  for (const auto& [text, expected] :
       {std::pair("...=2,4 in_8_bits=448 groups=5 scales:u8 ropes:bf16 d_rope=64 d=512",
                  "a number of scales that divides 448"),
        std::pair("...=2,4 in_8_bits=448 groups=7 scales:u8 d=448 ropes_are_values",
                  "at most 512 features together with the values"),
        std::pair("...=2,4 in_8_bits=512 groups=4 ropes:bf16 d_rope=64 d=576 ropes_are_values",
                  "at most 512 features together with the values"),
        std::pair("...=2,4 in_8_bits=448 groups=7 scales:u8 ropes:bf16 d_rope=64 d=448",
                  "the features of values and of ropes"),
        std::pair("...=2,4 in_8_bits=448 groups=7 scales:bf16 ropes:bf16 d_rope=64 d=512", "'scales'")})
    EXPECT_NE(refused(text + lists).find(expected), std::string::npos)
        << text << ": " << refused(text + lists);
}

// Tensor cores keep few bits of sums of 8-bit products, which is no fault of a result.
TEST(IndexerLogits, AreJudgedAsSumsOfEightBits) {
  const OperatorSchema& schema = find_schema("indexer_logits");
  const Tensors inputs{{"q", Tensor::random_normal({1, 2, 4, 64}, e4m3, 1)},
                       {"k", Tensor::random_normal({1, 50, 64}, e4m3, 2)},
                       {"weights", Tensor::random_normal({1, 2, 4}, f32, 3)}};
  const DType steps = plain_steps(schema, "logits", f32, inputs);
  const Tensor exact = formula_by_name(schema, inputs, {}).at("logits"),
               formed = formula_by_name(schema, inputs, {}, steps).at("logits");
  EXPECT_FALSE(equal(exact, formed));
  EXPECT_EQ(faults_of(judge_call(schema, inputs, {}, {{"logits", formed.to(f32)}})), "");
}

TEST(Latents, RefuseWrongCalls) {
  const Tensor q = Tensor::zeros({2, 3, 12}, f32), kv = Tensor::zeros({6, 1, 12}, f32);
  const Tensor lists = Tensor::zeros({2, 1, 4}, i32);
  expect_refusal([&] { sparse_mla(q, kv, lists); },
                 "argument 'd_v': expected at most the 12 features of a row");
  expect_refusal([&] { sparse_mla(q, kv, lists, {.d_v = 8, .more_kv = kv}); },
                 "more_kv and more_indices together");
  expect_refusal([&] { sparse_mla(q, kv, lists.slice(0, 0, 1), {.d_v = 8}); }, "argument 'indices'");
  expect_refusal([&] { topk_select(Tensor::zeros({2, 5}, f32), 4097); }, "a number from 0 to 4096");
}

}  // namespace latent_test
}  // namespace tegula::ops
