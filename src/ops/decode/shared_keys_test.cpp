// Keys that blocks share by lengths: sequences that end with a page or are empty, and sinks that are no
// numbers.
#include <fmt/format.h>

#include <limits>

#include "ops/decode/testing/call.hpp"
#include "tegula/explain.hpp"

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

}  // namespace shared_keys_test
}  // namespace tegula::ops
