// Caches of every width, page and type, each with all that a call may ask of it.
#include <fmt/format.h>

#include "ir/print.hpp"
#include "ops/decode/testing/call.hpp"
#include "ops/schema/launch.hpp"
#include "runtime/testing/test_environment.hpp"

namespace tegula::ops {
namespace decode_test {

const std::string bytes = " k_cache:e4m3 k_scale v_scale";

TEST(Caches, Of512Features) {
  const std::string features = " d=512 d_v=512 kv_heads=1 group=4 ",
                    rows = "batch=2 queries=1 keys=70 cache_seqlens",
                    pages = "batch=2 queries=3 pages=9 page_size=16 table_width=4 block_table cache_seqlens";
  for (const std::string& text : sampled<std::string>(
           {rows + features + "bf16", rows + features + "f16 sinks:f32 splits=2",
            rows + features + "bf16 sinks:f32" + bytes, pages + features + "bf16 causal sinks:f32",
            pages + features + "bf16 left=20 causal softcap=5", pages + features + "f16 causal" + bytes,
            pages + features + "bf16 tree_mask splits=2" + bytes,
            pages + features + "bf16 left=20 causal softcap=5 sinks:f32" + bytes}))
    Call("attention_with_kv_cache", text).expect_right();
}

// Up to 256 features several tokens of a group fill tiles of 64 or 128 rows.
TEST(Caches, OfAllWidths) {
  std::vector<std::string> calls;
  for (const int features : {64, 96, 128, 256})
    for (const char* rest : {"queries=16 causal", "queries=5 tree_mask k_cache:e4m3 k_scale v_scale"})
      calls.push_back(fmt::format(
          "batch=2 pages=5 page_size=64 table_width=2 kv_heads=1 group=8 d={0} d_v={0} bf16 block_table "
          "cache_seqlens {1}",
          features, rest));
  for (const std::string& text : sampled(calls)) Call("attention_with_kv_cache", text).expect_right();
}

TEST(Caches, PagesOfAnySize) {
  std::vector<std::string> calls;
  for (const int page : {1, 16, 24, 64, 100, 128, 256})
    for (const std::string& rest :
         {std::string("queries=2 causal left=40"), "queries=3 tree_mask sinks:f32" + bytes})
      calls.push_back(fmt::format(
          "batch=2 pages={} page_size={} table_width={} kv_heads=2 group=3 d=64 d_v=64 bf16 block_table "
          "cache_seqlens {}",
          400 / page + 2, page, 130 / page + 1, rest));
  for (const std::string& text : sampled(calls)) Call("attention_with_kv_cache", text).expect_right();
}

// One for the tensor, for each head, for each token, and for each token and head.
TEST(Caches, FactorsOfPages) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 1, 2}, Shape{9, 16, 1}, Shape{9, 16, 2}}) {
    Call call(
        "attention_with_kv_cache",
        "batch=2 queries=2 pages=9 page_size=16 table_width=4 kv_heads=2 group=2 d=32 d_v=32 bf16 causal "
        "k_cache:e4m3 block_table cache_seqlens");
    call.inputs.insert_or_assign("k_scale", Tensor::random_uniform(shape, f32, 1, 0.5, 2));
    call.inputs.insert_or_assign("v_scale", Tensor::random_uniform(shape, f32, 2, 0.5, 2));
    call.expect_right();
  }
}

// The last sequence of a batch has the bits that it has by itself, and the others' order does not matter.
TEST(Caches, BitsOfFixedSplitsOfPages) {
  for (const std::string& rest : sampled<std::string>({" tree_mask" + bytes, " causal"})) {
    const Call all(
        "attention_with_kv_cache",
        "batch=3 queries=2 pages=20 page_size=16 table_width=5 kv_heads=2 group=2 d=32 d_v=32 bf16 "
        "block_table cache_seqlens splits=2" +
            rest);
    Call one = all;
    for (const char* name : {"q", "block_table", "cache_seqlens", "tree_mask"})
      if (one.inputs.contains(name)) one.inputs.insert_or_assign(name, all.inputs.at(name).slice(0, 2, 3));
    for (const Target target : all_targets())
      for (const char* result : {"out", "lse"})
        EXPECT_TRUE(equal(all.on(target).at(result).slice(0, 2, 3), one.on(target).at(result)))
            << target.name() << rest;
  }
}

// All sequences see a prefix, whose pages are there once, and each its own tokens behind it.
TEST(Caches, APrefixThatSequencesShare) {
  constexpr int page = 8, shared = 3, own = 2;
  Call whole(
      "attention_with_kv_cache",
      "batch=2 queries=2 pages=9 page_size=8 table_width=5 kv_heads=1 group=3 d=32 d_v=32 f32 block_table "
      "cache_seqlens causal");
  whole.inputs.insert_or_assign(
      "block_table", Tensor::from<std::int32_t>({4, 0, 7, 1, 2, 4, 0, 7, 8, 5}, {2, shared + own}));
  whole.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({29, 40}, {2}));
  Call prefix = whole, rest = whole;
  prefix.inputs.insert_or_assign("block_table", whole.inputs.at("block_table").slice(1, 0, shared));
  prefix.inputs.erase("cache_seqlens"), prefix.options.erase("causal");
  rest.inputs.insert_or_assign("block_table", whole.inputs.at("block_table").slice(1, shared, shared + own));
  rest.inputs.insert_or_assign("cache_seqlens",
                               Tensor::from<std::int32_t>({29 - shared * page, 40 - shared * page}, {2}));
  for (const Target target : all_targets()) {
    Call merge("merge_attention", "parts=2 batch=2 queries=2 heads=3 d=32");
    std::int64_t part = 0;
    for (const Call* call : {&prefix, &rest}) {
      const Tensors results = call->on(target);
      copy_elements(results.at("out"), merge.inputs.at("outs").select(0, part).ref());
      copy_elements(results.at("lse"), merge.inputs.at("lses").select(0, part++).ref());
    }
    const Tensors merged = merge.on(target), expected = whole.on(target);
    for (const char* name : {"out", "lse"})
      EXPECT_LT(error_of(merged.at(name), expected.at(name)).largest, 1e-5) << target.name();
  }
}

// Latents that are keys and values as a whole: one to eight tokens, one to 128 heads, in rows, pages, bytes
// and records.
TEST(Caches, LatentsOf512Features) {
  const std::string
      features = " d=512 row=512 bf16 cache_seqlens",
      pages = " pages=5 page_size=16 table_width=2 block_table" + features,
      records =
          " pages=3 page_size=64 table_width=1 block_table d=512 row=584 bf16 cache_seqlens kv_cache:u8";
  for (const std::string& text : sampled<std::string>(
           {"batch=2 queries=1 heads=1 keys=70" + features,
            "batch=2 queries=8 heads=1 keys=70 causal" + features,
            "batch=1 queries=1 heads=128 keys=20 sinks:f32" + features,
            "batch=2 queries=3 heads=5 causal sinks:f32" + pages,
            "batch=1 queries=1 heads=70 splits=2" + pages, "batch=1 queries=4 heads=16 tree_mask" + pages,
            "batch=2 queries=2 heads=16 causal" + pages + " kv_cache:e4m3 kv_scale",
            "batch=1 queries=8 heads=2 causal sinks:f32" + records, "batch=1 queries=1 heads=128" + records,
            "batch=2 queries=2 heads=3 left=9 causal splits=2" + records}))
    Call("mla_decode", text).expect_right();
}

TEST(Caches, ListedLatentsOf512Features) {
  const std::string features = " kv_heads=1 d=512 d_v=512 bf16 entries=40 keys=60";
  for (const std::string& text : sampled<std::string>(
           {"queries=2 group=1" + features, "queries=1 group=128 sinks:f32" + features,
            "queries=3 group=16 causal counts" + features,
            "queries=1 group=20 splits=2 sinks:f32 more_kv more_indices more_keys=30 more_entries=10" +
                features}))
    Call("sparse_mla", text).expect_right();
  Call("sparse_mla_backward", "queries=2 group=3 sinks:f32 dlse" + features).expect_right();
  const std::string records =
      " ...=2,20 in_8_bits=448 groups=7 scales:u8 ropes:bf16 d_rope=64 d=512 ropes_are_values entries=40";
  for (const std::string& text :
       sampled<std::string>({"queries=8 heads=1" + records, "queries=1 heads=128 sinks:f32" + records,
                             "queries=2 heads=17 counts splits=2" + records}))
    Call("sparse_mla_decode", text).expect_right();
}

// Wrong tables, caches and choices are refused before anything runs.
TEST(Caches, RefuseWrongCalls) {
  const std::string pages =
      "batch=2 queries=1 pages=4 page_size=8 table_width=2 kv_heads=2 group=2 d=16 d_v=16 bf16 block_table";
  const auto refused_with = [&](const char* name, const Tensor& wrong) {
    return refusal([&] {
      Call call("attention_with_kv_cache", pages + " cache_seqlens");
      call.inputs.insert_or_assign(name, wrong);
      call.on(Target::interpreter());
    });
  };
  for (const auto& [name, wrong] :
       {std::pair("block_table", Tensor::zeros({3, 2}, i32)),
        std::pair("block_table", Tensor::zeros({2, 2}, f32)),
        std::pair("cache_seqlens", Tensor::zeros({3}, i32)),
        std::pair("cache_seqlens", Tensor::zeros({2}, f32)),
        std::pair("v_cache", Tensor::zeros({4, 7, 2, 16}, bf16)),
        std::pair("v_cache", Tensor::zeros({4, 8, 2, 16}, f16)),
        std::pair("k_cache", Tensor::zeros({4, 8, 3, 16}, bf16)),
        std::pair("q", Tensor::zeros({2, 1, 5, 16}, bf16)),
        std::pair("k_scale", Tensor::zeros({4, 3, 2}, f32)),
        std::pair("tree_mask", Tensor::zeros({2, 1, 2}, boolean)),
        std::pair("sinks", Tensor::zeros({3}, f32)), std::pair("mask", Tensor::zeros({2, 2, 0}, boolean))})
    EXPECT_NE(refused_with(name, wrong)
                  .find(fmt::format("'{}'", name == std::string("k_cache") ? "v_cache" : name)),
              std::string::npos)
        << name << ": " << refused_with(name, wrong);
}

// On a CPU their rows are gathered.
TEST(Caches, PagesOfOneToken) {
  const std::string pages =
      "batch=2 queries=2 pages=200 page_size=1 table_width=90 block_table cache_seqlens ";
  const std::string of_heads = pages + "kv_heads=2 group=2 causal bf16 ";
  for (const auto& [op, call] :
       {std::pair("attention_with_kv_cache", of_heads + "d=64 d_v=64"),
        std::pair("attention_with_kv_cache", of_heads + "d=35 d_v=72"),
        std::pair("attention_with_kv_cache",
                  of_heads + "d=32 d_v=64 k_cache:e4m3 v_cache:e4m3 k_scale v_scale"),
        std::pair("mla_decode", pages + "heads=4 d=96 row=96 d_v=64 bf16"),
        std::pair("paged_indexer_logits", pages + "heads=2 d=16 bf16")}) {
    Call(op, call).expect_right();
    const OperatorSchema& schema = find_schema(op);
    const ExampleCall example = ExampleCall::parse(schema, call);
    for (const Target target : {Target::cpu(), Target::cuda()}) {
      const ListedCall listed = listed_by_name(schema, example.described(schema), example.options, target);
      const std::string text = ir::print(*listed.kernels.front().ir());
      EXPECT_EQ(text.find("gather(") != std::string::npos, target == Target::cpu()) << op << '\n' << text;
    }
  }
}

// Blocks are splits of its keys.
TEST(Caches, OfOneSequenceAreReadOnceForAllQueriesOnACpu) {
  const OperatorSchema& schema = find_schema("attention_with_kv_cache");
  for (const char* keys : {"batch=1 keys=131072", "batch=16 keys=8192", "batch=128 keys=1024"}) {
    const ExampleCall call = ExampleCall::parse(
        schema, fmt::format("{} queries=4 kv_heads=2 group=8 d=128 d_v=128 bf16 causal", keys));
    const ListedCall listed = listed_by_name(schema, call.described(schema), call.options, Target::cpu());
    EXPECT_NE(listed.kernels.front().ir()->name.find("_g8_q4_"), std::string::npos)
        << listed.kernels.front().ir()->name;
  }
}

}  // namespace decode_test
}  // namespace tegula::ops
