// Packed attention whose tiles are listed, or share keys by length: sequences without queries, without keys,
// and without both.
#include <fmt/format.h>

#include "ops/decode/testing/call.hpp"

namespace tegula::ops {
namespace packed_tiles_test {

using decode_test::Call;

struct Row {
  std::vector<std::int32_t> queries, keys;
};
const Row uneven_rows[] = {{{0, 70, 0, 5, 0}, {5, 0, 295, 100, 0}},
                           {{1, 1, 1, 0, 3, 1}, {900, 0, 64, 2, 65, 700}},
                           {{150, 0, 0, 1, 1, 1, 1, 1}, {150, 3, 0, 1, 1, 1, 1, 1}}};

Call packed_call(const char* op, const Row& row, const char* others) {
  const auto fences = [](const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> result{0};
    for (const std::int32_t length : lengths) result.push_back(result.back() + length);
    return result;
  };
  const auto q = fences(row.queries), k = fences(row.keys);
  Call call(op, fmt::format("sequences={} queries={} keys={} kv_heads=1 group=2 d=64 d_v=64 bf16 "
                            "cu_seqlens_q cu_seqlens_k {}",
                            row.queries.size(), q.back(), k.back(), others));
  call.inputs.insert_or_assign("cu_seqlens_q", Tensor::from(q));
  call.inputs.insert_or_assign("cu_seqlens_k", Tensor::from(k));
  return call;
}

TEST(PackedTiles, OfSequencesWithoutQueriesOrKeys) {
  for (const Row& row : uneven_rows)
    for (const char* others :
         {"causal sinks:f32", "splits=1 causal", "splits=1 tile_queries=32 tile_keys=64"})
      packed_call("attention", row, others).expect_right();
}

TEST(PackedTiles, OfGradientsOfSequencesWithoutQueriesOrKeys) {
  for (const Row& row : uneven_rows) {
    Call call = packed_call("attention_backward", row, "causal tile_queries=64 tile_keys=64"),
         forward = packed_call("attention", row, "causal");
    for (const char* name : {"q", "k", "v"}) forward.inputs.insert_or_assign(name, call.inputs.at(name));
    const Tensors results = forward.on(Target::cpu());
    for (const char* name : {"out", "lse"}) call.inputs.insert_or_assign(name, results.at(name));
    call.expect_right();
  }
}

}  // namespace packed_tiles_test
}  // namespace tegula::ops
