// What the sweep over tables does not reach: factors of heads, what follows the end of a sequence,
// entries of tables that are padding, bits that do not depend on the batch, and splits that are merged.
#include <fmt/format.h>

#include "ops/decode/testing/call.hpp"
#include "tegula/explain.hpp"

namespace tegula::ops {
namespace decode_test {

const std::string of_rows =
    "batch=2 queries=2 keys=70 kv_heads=2 group=2 d=32 d_v=32 bf16 cache_seqlens causal";
const std::string of_pages =
    "batch=2 queries=1 pages=9 page_size=16 table_width=4 kv_heads=2 group=2 d=32 d_v=32 "
    "bf16 block_table cache_seqlens";

TEST(Decode, FactorsOfTensorsAndHeads) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 1, 2}}) {
    Call call("attention_with_kv_cache", of_rows + " k_cache:e4m3");
    call.inputs.insert_or_assign("k_scale", Tensor::full(shape, f32, 0.5));
    call.inputs.insert_or_assign("v_scale", Tensor::full(shape, f32, 3));
    call.inputs.at("v_scale").at<float>(0, 0, shape[2] - 1) = 2;
    call.expect_right();
  }
}

// There are no rows behind the last split, whatever the weight of a sum of 1 would be beside theirs.
TEST(Decode, SplitsOfSmallSumsAreMerged) {
  for (const char* splits : {"3", "16", "17"}) {
    Call call("attention_with_kv_cache", of_rows + " splits=" + splits);
    for (const auto& [name, value] : {std::pair("q", 8.), std::pair("k_cache", -8.)})
      call.inputs.insert_or_assign(name, Tensor::full(call.inputs.at(name).shape(), bf16, value));
    call.expect_right();
  }
}

// The memory of a cache is not cleared: what nobody has written may be NaN.
TEST(Decode, WhatLiesBehindTheEndIsNotRead) {
  const std::string bytes = " k_cache:e4m3 k_scale v_scale";
  for (const std::string& text : {of_rows, of_pages, of_rows + bytes, of_pages + bytes}) {
    Call call("attention_with_kv_cache", text);
    const bool paged = call.inputs.contains("block_table");
    call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({37, 0}, {2}));
    if (paged) {
      call.inputs.insert_or_assign("block_table",
                                   Tensor::from<std::int32_t>({5, -1, 2, 99, -1, -1, -1, -1}, {2, 4}));
    }
    for (const char* cache : {"k_cache", "v_cache"}) {
      const Tensor& tensor = call.inputs.at(cache);
      const Tensor behind =
          paged ? tensor.select(0, 2).slice(0, 5, 16) : tensor.select(0, 0).slice(0, 37, 70);
      copy_elements(Tensor::full(behind.shape(), bf16, std::nan("")).to(tensor.dtype()), behind.ref());
    }
    call.expect_right();
  }
}

// Pages that no tile fits, and trees of more tokens than a group has heads.
TEST(Decode, TreesOfManyTokensInPagesOfAnySize) {
  for (const char* page : {"1", "3", "7"})
    for (const char* type : {"", " k_cache:e4m3 k_scale v_scale"})
      Call(
          "attention_with_kv_cache",
          fmt::format("batch=2 queries=16 pages=40 page_size={} table_width=9 kv_heads=1 group=3 d=24 d_v=16 "
                      "bf16 block_table cache_seqlens tree_mask{}",
                      page, type))
          .expect_right();
}

// Rows that begin at multiples of 8, 4, 2 or 1 bytes, which no box holds, in pages that are parts of a tile,
// have several tiles, or neither, and without pages.
TEST(Decode, RowsThatBeginAnywhere) {
  const std::string bytes = " k_cache:e4m3", factors = bytes + " k_scale v_scale";
  for (const auto& [features, rows] :
       {std::pair("d=72 d_v=72" + factors, "pages=20 page_size=16 table_width=10"),
        std::pair("d=72 d_v=40" + bytes, "pages=9 page_size=48 table_width=4"),
        std::pair("d=76 d_v=20" + bytes, "pages=3 page_size=256 table_width=1"),
        std::pair("d=35 d_v=64" + factors, "pages=20 page_size=16 table_width=10"),
        std::pair(std::string("d=36 d_v=36"), "pages=90 page_size=3 table_width=60"),
        std::pair(std::string("d=35 d_v=33"), "pages=9 page_size=48 table_width=4")})
    Call("attention_with_kv_cache",
         fmt::format("batch=3 queries=2 {} kv_heads=3 group=2 {} bf16 block_table cache_seqlens causal", rows,
                     features))
        .expect_right();
  for (const char* features : {"d=35 d_v=35 k_cache:e4m3", "d=37 d_v=74"})
    Call(
        "attention_with_kv_cache",
        fmt::format("batch=2 queries=1 keys=150 kv_heads=3 group=4 bf16 cache_seqlens splits=2 {}", features))
        .expect_right();
}

// A step has keys of one block, each of them in a page of its own.
TEST(Decode, ChosenBlocksOfPagesOfOneToken) {
  for (const char* choice :
       {"indices entries=4 k_block_size=16 k_cache:e4m3 k_scale v_scale",
        "indices counts entries=3 k_block_size=24", "mask mask_blocks=12 k_block_size=8"})
    Call("attention_with_kv_cache",
         fmt::format(
             "batch=2 queries=2 pages=200 page_size=1 table_width=90 kv_heads=2 group=2 d=64 d_v=64 bf16 "
             "block_table cache_seqlens causal {}",
             choice))
        .expect_right();
}

// Tiles of as few rows as there are heads, whose steps are parts of a page.
TEST(Decode, RecordsOfFewHeadsInPagesOf48) {
  for (const char* heads : {"8", "16"})
    for (const char* row : {"d=576 row=656", "d=512 row=584"})
      Call("mla_decode", fmt::format("batch=2 queries=1 pages=5 page_size=48 table_width=3 heads={} {} bf16 "
                                     "kv_cache:u8 block_table cache_seqlens",
                                     heads, row))
          .expect_right();
}

// Blocks that get all that memory gives are not divided, unless one of them may have far more keys than
// others, or many keys come by few rows.
TEST(Decode, KeysOfManyBlocksAreNotSplit) {
  const auto first_kernel = [](const std::string& rows, int page) {
    const Call call(
        "attention_with_kv_cache",
        fmt::format("pages=4 page_size={} kv_heads=8 group=8 d=128 d_v=128 bf16 block_table {}", page, rows));
    return explain(call.schema.name, call.inputs, {}, Target::cuda())[0].kernel;
  };
  const auto is_split = [&](const std::string& rows, int page = 64) {
    return first_kernel(rows, page).find("_split") != std::string::npos;
  };
  const auto is_shared = [&](const std::string& rows) {
    return first_kernel(rows, 64).find("_shares") != std::string::npos;
  };
  for (const char* rows :
       {"queries=1 batch=8 table_width=32", "queries=1 batch=8 table_width=32 cache_seqlens",
        "queries=1 batch=8 table_width=256 cache_seqlens", "queries=1 batch=8 table_width=2048",
        "queries=16 batch=8 table_width=32"})
    EXPECT_FALSE(is_split(rows)) << rows;
  for (const char* rows :
       {"queries=1 batch=4 table_width=32", "queries=1 batch=8 table_width=2048 cache_seqlens"})
    EXPECT_TRUE(is_split(rows)) << rows;
  for (const char* rows : {"queries=1 batch=6 table_width=2048 cache_seqlens",
                           "queries=1 batch=32 table_width=128 cache_seqlens"})
    EXPECT_TRUE(is_shared(rows)) << rows;
  for (const char* rows :
       {"queries=1 batch=8 table_width=2048", "queries=1 batch=3 table_width=2048 cache_seqlens",
        "queries=1 batch=32 table_width=64 cache_seqlens"})
    EXPECT_FALSE(is_shared(rows)) << rows;
  EXPECT_FALSE(is_split("queries=1 batch=8 table_width=256", 16));
  EXPECT_TRUE(is_split("queries=1 batch=8 table_width=512", 16));
  EXPECT_FALSE(is_split("queries=1 batch=12 table_width=512", 16));
}

// Tables that are all padding, and sequences that are not there.
TEST(Decode, NoKeysAtAll) {
  const std::string pages = "batch=3 pages=9 page_size=3 table_width=5 bf16 block_table cache_seqlens ";
  for (const auto& [name, text] :
       {std::pair("attention_with_kv_cache", "queries=2 kv_heads=2 group=2 d=32 d_v=32 causal splits=3"),
        std::pair("mla_decode", "queries=2 heads=3 d=24 row=24 d_v=16"),
        std::pair("paged_indexer_logits", "queries=2 heads=2 d=16"),
        std::pair("append_kv", "tokens=2 kv_heads=2 d=16 d_v=16 v v_cache")}) {
    Call padding(name, pages + text), empty = padding;
    padding.inputs.insert_or_assign("block_table", Tensor::full({3, 5}, i32, -1));
    padding.expect_right();
    empty.inputs.insert_or_assign("cache_seqlens", Tensor::zeros({3}, i32));
    empty.expect_right();
  }
}

// The second page is 2^31 elements behind the first; what is between them is not touched.
TEST(Decode, PagesFarApart) {
  for (const int page : {16, 3}) {
    Call call(
        "attention_with_kv_cache",
        fmt::format("batch=2 queries=1 pages=2 page_size={} table_width=2 kv_heads=2 group=2 d=64 d_v=64 "
                    "bf16 k_cache:e4m3 k_scale v_scale block_table cache_seqlens",
                    page));
    constexpr std::int64_t far = std::int64_t{1} << 31;
    for (const char* name : {"k_cache", "v_cache"}) {
      const Tensor near = call.inputs.at(name), room = Tensor::empty({far + near.nelements()}, e4m3);
      const TensorRef apart(room.data(), e4m3, near.shape(), {far, 128, 64, 1});
      copy_elements(near, apart);
      call.inputs.insert_or_assign(name, Tensor::adopt(apart, room.owner()));
    }
    call.expect_right();
  }
}

TEST(Decode, BitsOfFixedSplitsDoNotDependOnTheBatch) {
  const Call all("attention_with_kv_cache", of_rows + " splits=3");
  Call one = all;
  for (const char* name : {"q", "k_cache", "v_cache", "cache_seqlens"})
    one.inputs.insert_or_assign(name, all.inputs.at(name).slice(0, 1, 2));
  for (const Target target : test_targets())
    for (const char* result : {"out", "lse"})
      EXPECT_TRUE(equal(all.on(target).at(result).slice(0, 1, 2), one.on(target).at(result)))
          << target.name();
}

// More blocks than processors, of which the last sequence has the longest.
TEST(Decode, LongSequencesComeFirst) {
  constexpr int sequences = 140;
  std::vector<std::int32_t> lengths;
  for (int b = 0; b < sequences; ++b) lengths.push_back(b + 1 == sequences ? 300 : b * 37 % 90);
  std::vector<Target> targets = all_targets();
  std::erase_if(targets, [](const Target& target) { return target == Target::interpreter(); });
  for (const auto& [name, heads] : {std::pair("mla_decode", "heads=2 d=24 row=24"),
                                    std::pair("attention_with_kv_cache", "kv_heads=1 group=2 d=16")}) {
    Call call(name,
              fmt::format("batch={} queries=1 keys=1024 {} d_v=16 bf16 cache_seqlens", sequences, heads));
    call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>(lengths, {sequences}));
    call.expect_right(targets);
  }
}

// One sequence far longer than the others, none, several and all of them; with sinks, a window, a tree, and
// lengths of 0. Rooms are large enough that keys are shared, though few pages exist.
TEST(Decode, LongSequencesAreShared) {
  const std::vector<std::vector<std::int32_t>> lengths = {{3, 700, 64, 0, 20},
                                                          {130, 129, 128, 127, 126},
                                                          {0, 0, 0, 0, 0},
                                                          {900, 2, 3, 800, 1},
                                                          {1, 1, 1, 1, 1500}};
  std::size_t next = 0;
  for (const char* more : {"d=64 d_v=64 queries=1", "d=128 d_v=128 queries=3 sinks:f32 causal",
                           "d=32 d_v=16 queries=2 tree_mask sinks:bf16",
                           "d=64 d_v=64 queries=1 left=300 causal k_cache:e4m3 k_scale v_scale",
                           "d=64 d_v=64 queries=4 softcap=20 f16"}) {
    Call call(
        "attention_with_kv_cache",
        fmt::format("batch=5 pages=12 page_size=64 table_width=20000 kv_heads=8 group=2 bf16 block_table "
                    "cache_seqlens {}",
                    more));
    const std::string first = explain(call.schema.name, call.inputs, {}, Target::cuda())[0].kernel;
    EXPECT_NE(first.find("_shares"), std::string::npos) << first;
    call.inputs.insert_or_assign("cache_seqlens",
                                 Tensor::from<std::int32_t>(lengths[next++ % lengths.size()], {5}));
    call.expect_right();
  }
  for (const char* more :
       {"heads=16 d=80 row=80 queries=2 causal sinks:f32", "heads=70 d=64 row=64 queries=1",
        "heads=8 d=80 row=80 queries=1 kv_cache:e4m3 kv_scale"}) {
    Call call("mla_decode",
              fmt::format("batch=5 pages=12 page_size=64 table_width=100000 bf16 d_v=64 block_table "
                          "cache_seqlens {}",
                          more));
    const std::string first =
        explain(call.schema.name, call.inputs, {{"d_v", "64"}}, Target::cuda())[0].kernel;
    EXPECT_NE(first.find("_shares"), std::string::npos) << first;
    call.inputs.insert_or_assign("cache_seqlens",
                                 Tensor::from<std::int32_t>(lengths[next++ % lengths.size()], {5}));
    call.expect_right();
  }
}

TEST(Decode, LengthsBeyondTheCacheAreErrors) {
  for (const std::string& text : {of_rows, of_pages}) {
    Call call("attention_with_kv_cache", text);
    call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({3, 71}, {2}));
    for (const Target target : test_targets()) EXPECT_THROW(call.on(target), ProgramError);
  }
}

TEST(Decode, LengthsBeyondTheCacheOfAnIndexerAreErrors) {
  Call call(
      "paged_indexer_logits",
      "batch=2 queries=1 pages=9 page_size=16 table_width=4 heads=2 d=16 bf16 block_table cache_seqlens");
  call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({3, 65}, {2}));
  for (const Target target : test_targets()) EXPECT_THROW(call.on(target), ProgramError) << target.name();
}

// A prefix that two sequences share, and what each has behind it.
TEST(Decode, PartsAreMerged) {
  const Call whole("attention", "batch=2 queries=3 keys=50 kv_heads=1 group=2 d=16 d_v=16");
  const auto over_keys = [&](std::int64_t begin, std::int64_t end) {
    Call call = whole;
    for (const char* name : {"k", "v"})
      call.inputs.insert_or_assign(name, whole.inputs.at(name).slice(1, begin, end));
    return call.on(Target::automatic());
  };
  const Tensors results = whole.on(Target::automatic());
  Call merge("merge_attention", "parts=2 batch=2 queries=3 heads=2 d=16");
  std::int64_t next = 0;
  for (const auto& results : {over_keys(0, 33), over_keys(33, 50)}) {
    copy_elements(results.at("out"), merge.inputs.at("outs").select(0, next).ref());
    copy_elements(results.at("lse"), merge.inputs.at("lses").select(0, next++).ref());
  }
  for (const auto& [name, merged] : merge.on(Target::automatic()))
    EXPECT_LT(error_of(merged, results.at(name)).largest, 1e-5) << name;
}

TEST(Decode, PartsThatCountForNothing) {
  Call call("merge_attention", "parts=2 batch=1 queries=2 heads=2 d=16");
  call.inputs.insert_or_assign(
      "lses",
      Tensor::from<float>({-INFINITY, 1, -INFINITY, -INFINITY, 2, -INFINITY, 0, -INFINITY}, {2, 1, 2, 2}));
  const Tensor unused = call.inputs.at("outs").select(0, 0).select(0, 0).select(0, 0).select(0, 0);
  copy_elements(Tensor::full({16}, f32, std::nan("")), unused.ref());
  call.expect_right(test_targets());
}

constexpr const char* of_new_tokens =
    "batch=2 tokens=3 pages=8 page_size=4 table_width=4 kv_heads=2 d=16 d_v=16 bf16 v v_cache block_table "
    "cache_seqlens";

// Keys and values side by side in one tensor of pages, as serving systems keep them; a sequence is new,
// another has entries behind its end.
TEST(Decode, NewTokensAreWrittenAndNothingElse) {
  Call call("append_kv", of_new_tokens);
  call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({3, 7}, {2}));
  call.inputs.insert_or_assign("block_table",
                               Tensor::from<std::int32_t>({5, -1, -1, -1, 7, 0, -1, -1}, {2, 4}));
  const Planted both(Tensor::random_normal({8, 2, 4, 2, 16}, bf16, 3));
  call.inputs.insert_or_assign("k_cache", both.inside.select(1, 0));
  call.inputs.insert_or_assign("v_cache", both.inside.select(1, 1));
  call.expect_right();
  const Tensor before = both.inside.clone();
  call_in_place(call.schema, call.inputs, call.options);
  EXPECT_TRUE(both.is_clean_outside());
  for (const std::int64_t page : {1, 2, 3, 4, 6})
    EXPECT_TRUE(equal(before.select(0, page), both.inside.select(0, page))) << page;
  EXPECT_FALSE(equal(before.select(0, 5), both.inside.select(0, 5)));
}

TEST(Decode, NewTokensThatHaveNoPlaceAreErrors) {
  for (const auto& [name, numbers] : std::map<std::string, std::vector<std::int32_t>>{
           {"cache_seqlens", {3, 17}}, {"block_table", {0, 1, 2, 3, 4, 5, 6, 8}}}) {
    Call call("append_kv", of_new_tokens);
    call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({16, 16}, {2}));
    const Shape shape = call.inputs.at(name).shape();
    call.inputs.insert_or_assign(name, Tensor::from<std::int32_t>(numbers, shape));
    for (const Target target : all_targets()) EXPECT_THROW(call.on(target), ProgramError) << target.name();
  }
  Call call("append_kv", std::string(of_new_tokens) + " cosine sine positions length=9 half=4");
  call.inputs.insert_or_assign("positions", Tensor::full({2, 3}, i32, 9));
  for (const Target target : test_targets()) EXPECT_THROW(call.on(target), ProgramError) << target.name();
}

// Lengths are those of the attention that follows. Who gives those without the new tokens is told so, and the
// other sequences get theirs.
TEST(Decode, LengthsWithoutTheNewTokensAreErrors) {
  for (const std::int32_t length : {2, 1, -1}) {
    Call call("append_kv", of_new_tokens);
    call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>({length, 7}, {2}));
    call.inputs.insert_or_assign("block_table",
                                 Tensor::from<std::int32_t>({5, 6, 4, 3, 7, 0, -1, -1}, {2, 4}));
    const Tensor before = call.inputs.at("k_cache").clone();
    for (const Target target : all_targets()) {
      try {
        call_in_place(call.schema, call.inputs, call.options, target);
        ADD_FAILURE() << length << ' ' << target.name();
      } catch (const ProgramError& e) {
        EXPECT_NE(std::string(e.what()).find("fewer tokens than are appended"), std::string::npos)
            << e.what();
      }
      EXPECT_TRUE(equal(before.slice(0, 3, 7), call.inputs.at("k_cache").slice(0, 3, 7))) << target.name();
    }
  }
  expect_refusal(
      [&] { Call("append_kv", "batch=1 tokens=9 keys=8 kv_heads=1 d=16").on(Target::interpreter()); },
      "room for the 9 new tokens");
}

TEST(Decode, CachesThatShareMemoryAreRefused) {
  Call call("append_kv", of_new_tokens);
  call.inputs.insert_or_assign("v_cache", call.inputs.at("k_cache"));
  expect_refusal([&] { call_in_place(call.schema, call.inputs, call.options); },
                 "'k_cache': expected its own memory, not that of v_cache");
}

TEST(Decode, RefusesWrongRecords) {
  const auto refused = [](const std::string& text) {
    return refusal([&] { Call("mla_decode", text).on(Target::interpreter()); });
  };
  const std::string pages = "batch=1 queries=1 pages=1 page_size=16 table_width=1 heads=2 block_table bf16 ";
  EXPECT_NE(refused(pages + "d=576 row=584 kv_cache:u8").find("records of 656 bytes"), std::string::npos);
  EXPECT_NE(
      refused("batch=1 queries=1 keys=16 heads=2 d=576 row=656 f16 kv_cache:u8").find("u8 with q in bf16"),
      std::string::npos);
  EXPECT_NE(refused("batch=1 queries=1 keys=16 heads=2 d=64 row=64").find("no more than the 64 features"),
            std::string::npos);
}

}  // namespace decode_test
}  // namespace tegula::ops
