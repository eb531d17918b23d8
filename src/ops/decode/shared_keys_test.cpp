// Keys that blocks share by lengths: sequences that end with a page or are empty, and sinks that are no
// numbers.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/decode/testing/call.hpp"

namespace tegula::ops {
namespace shared_keys_test {

TEST(SharedKeys, OfSequencesThatEndWithPages) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const char* form : {"pages=12 page_size=64 table_width=20000 queries=1 sinks:f32",
                           "pages=30 page_size=48 table_width=27000 queries=3 sinks:f32 causal left=100"}) {
    decode_test::Call call(
        "attention_with_kv_cache",
        fmt::format("batch=5 kv_heads=8 group=2 d=64 d_v=64 bf16 block_table cache_seqlens {}", form));
    const std::string first = explain(call.schema.name, call.inputs, {}, Target::cuda())[0].kernel;
    EXPECT_NE(first.find("_shares"), std::string::npos) << first;
    Tensor sinks = call.inputs.at("sinks");
    sinks.set({0}, -inf), sinks.set({1}, inf);
    for (const std::vector<std::int32_t>& lengths :
         {std::vector<std::int32_t>{48, 128, 192, 960, 64}, {0, 0, 768, 0, 0}, {144, 144, 144, 144, 144}}) {
      call.inputs.insert_or_assign("cache_seqlens", Tensor::from<std::int32_t>(lengths, {5}));
      call.expect_right({Target::emulated_sm90()});
    }
  }
}

// As many blocks as give all that memory does, and no more than processors, which take entries of the list in
// another order.
TEST(SharedKeys, OfOneRoundOfBlocks) {
  for (const char* form : {"batch=5 kv_heads=16 group=2 d=64 d_v=64 pages=12 page_size=64 table_width=9000 "
                           "block_table queries=1",
                           "batch=9 kv_heads=7 group=70 d=32 d_v=32 pages=12 page_size=64 table_width=30000 "
                           "block_table queries=1",
                           "batch=11 kv_heads=11 group=3 d=32 d_v=32 pages=12 page_size=64 table_width=20000 "
                           "block_table queries=3 "
                           "causal sinks:f32"}) {
    decode_test::Call call("attention_with_kv_cache", fmt::format("{} bf16 cache_seqlens", form));
    const std::string first = explain(call.schema.name, call.inputs, {}, Target::cuda())[0].kernel;
    EXPECT_NE(first.find("_shares_spreads"), std::string::npos) << first;
    const auto batch = static_cast<std::size_t>(call.inputs.at("cache_seqlens").shape()[0]);
    for (const std::vector<std::int32_t>& some :
         {std::vector<std::int32_t>{700, 3, 64, 0, 20}, {64}, {0}, {768, 768, 1}, {1, 2, 700}}) {
      std::vector<std::int32_t> lengths(batch, some.back());
      std::copy(some.begin(), some.end(), lengths.begin());
      call.inputs.insert_or_assign(
          "cache_seqlens", Tensor::from<std::int32_t>(lengths, {call.inputs.at("cache_seqlens").shape()[0]}));
      call.expect_right({Target::emulated_sm90()});
    }
  }
}

}  // namespace shared_keys_test
}  // namespace tegula::ops
