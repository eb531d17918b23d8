// Dense attention against its formula, over one table.
#include "ops/reference/reference.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace attention_test {

struct Row {
  std::string name;
  std::int64_t batch = 1, queries = 17, keys = 23, heads = 2, kv_heads = 1, dim = 16, dim_v = 16;
  DType type = f32;
  AttentionOptions options = {};
  bool sinks = false;
  DType sinks_type = f32;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

void add_extents_and_types(std::vector<Row>& rows) {
  for (std::int64_t queries : {0, 1, 2, 33, 127, 129})
    for (std::int64_t keys : {0, 1, 31, 129})
      if (queries * keys < 129 * 129)
        rows.push_back(
            {.name = "sizes", .queries = queries, .keys = keys, .options = {.causal = queries % 2 == 1}});
  for (std::int64_t group : {1, 2, 3, 8}) {
    rows.push_back(
        {.name = "group", .queries = 9, .heads = group * 2, .kv_heads = 2, .options = {.causal = true}});
    rows.push_back({.name = "group of one query", .batch = 2, .queries = 1, .heads = group, .kv_heads = 1});
  }
  for (auto [dim, dim_v] :
       {std::pair(16, 24), std::pair(40, 8), std::pair(72, 1), std::pair(192, 128), std::pair(256, 256)})
    rows.push_back({.name = "features", .queries = 5, .dim = dim, .dim_v = dim_v});
  for (DType type : {f16, bf16})
    for (bool causal : {false, true})
      rows.push_back({.name = "type",
                      .batch = 2,
                      .queries = 40,
                      .keys = 70,
                      .heads = 4,
                      .kv_heads = 2,
                      .type = type,
                      .options = {.causal = causal}});
}

void add_options(std::vector<Row>& rows) {
  for (auto [left, right] :
       {std::pair(0, 0), std::pair(5, -1), std::pair(-1, 3), std::pair(7, 2), std::pair(300, 300)})
    for (std::int64_t keys : {20, 60})
      rows.push_back({.name = "window",
                      .queries = 40,
                      .keys = keys,
                      .options = {.left = left, .right = right, .tiles = {16, 16}}});
  rows.push_back({.name = "causal window",
                  .queries = 70,
                  .keys = 70,
                  .options = {.causal = true, .left = 9, .right = 4, .tiles = {16, 32}}});
  rows.push_back({.name = "more queries than keys", .queries = 50, .keys = 20, .options = {.causal = true}});
  for (float cap : {0.5f, 20.f})
    rows.push_back({.name = "softcap", .options = {.causal = true, .softcap = cap}});
  rows.push_back({.name = "scale", .options = {.scale = 1.5f}});
  rows.push_back({.name = "sinks",
                  .queries = 30,
                  .keys = 12,
                  .heads = 6,
                  .kv_heads = 2,
                  .options = {.causal = true},
                  .sinks = true});
  for (DType type : {f16, bf16})
    for (std::int64_t kv_heads : {1, 2})  // one head of keys: the heads of q share tiles
      rows.push_back({.name = "sinks of 16 bits",
                      .heads = 2,
                      .kv_heads = kv_heads,
                      .options = {.causal = true},
                      .sinks = true,
                      .sinks_type = type});
  rows.push_back(
      {.name = "sinks softcap", .options = {.left = 3, .softcap = 3, .tiles = {4, 16}}, .sinks = true});
  rows.push_back({.name = "no sequences", .batch = 0});
  // More splits than tiles of keys leave some without a key.
  for (int splits : {2, 3, 17, 64})
    for (std::int64_t keys : {0, 1, 45, 200})
      for (std::int64_t kv_heads : {1, 2})
        rows.push_back({.name = "splits",
                        .batch = 2,
                        .queries = kv_heads == 1 ? 1 : 21,
                        .keys = keys,
                        .heads = 4,
                        .kv_heads = kv_heads,
                        .dim_v = 24,
                        .options = {.causal = splits == 3, .splits = splits, .tiles = {0, 16}},
                        .sinks = splits == 17});
  for (DType type : {f16, bf16})
    rows.push_back({.name = "splits of a window",
                    .queries = 70,
                    .keys = 90,
                    .type = type,
                    .options = {.left = 20, .right = 3, .softcap = 4, .splits = 4, .tiles = {16, 16}}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_extents_and_types(rows);
  add_options(rows);
  return in_both_layouts(rows, 3);
}

Shape shape_of(const Row& row, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  if (row.options.layout == Layout::bhsd) return {row.batch, heads, tokens, dim};
  return {row.batch, tokens, heads, dim};
}

class AttentionRows : public testing::TestWithParam<Row> {};

TEST_P(AttentionRows, AgreeWithTheFormula) {
  const Row& row = GetParam();
  for (Target target : test_targets()) {
    SCOPED_TRACE(row.name + " " + std::to_string(row.queries) + " x " + std::to_string(row.keys) + " " +
                 std::string(row.type.name()) + " " + std::string(target.name()));
    const Planted q(Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim), row.type, 1)),
        k(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim), row.type, 2)),
        v(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim_v), row.type, 3)),
        out(shape_of(row, row.queries, row.heads, row.dim_v), row.type),
        lse({row.batch, row.heads, row.queries}, f32);
    const Tensor sinks = Tensor::random_normal({row.heads}, row.sinks_type, 4);
    AttentionOptions options = row.options;
    if (row.sinks) options.sinks = sinks;
    options.out = out.inside, options.lse = lse.inside, options.target = target;
    attention(q.inside, k.inside, v.inside, options);
    const AttentionResult exact = reference::attention(q.inside, k.inside, v.inside, options),
                          plain = reference::attention(q.inside, k.inside, v.inside, options, row.type);
    expect_close("out", out.inside, exact.out, plain.out, row.type);
    expect_close("lse", lse.inside, exact.lse, plain.lse, f32);
    EXPECT_TRUE(out.is_clean_outside() && lse.is_clean_outside());
  }
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionRows, testing::ValuesIn(table()));

// Packed sequences: one neighbour after the other is NaN, so that reading one shows.
TEST(Attention, PackedSequencesDoNotMeet) {
  const Tensor fences_q = Tensor::from<std::int32_t>({0, 7, 7, 40, 41}),
               fences_k = Tensor::from<std::int32_t>({0, 20, 25, 25, 61});
  for (Target target : test_targets())
    for (int poisoned = 0; poisoned < 4; ++poisoned)
      for (auto [causal, splits] : {std::pair(false, 1), std::pair(true, 1), std::pair(true, 5)}) {
        SCOPED_TRACE(std::string(target.name()) + " " + std::to_string(poisoned) + " " +
                     std::to_string(splits));
        const Tensor q = Tensor::random_normal({41, 4, 16}, f32, 1),
                     k = Tensor::random_normal({61, 2, 16}, f32, 2),
                     v = Tensor::random_normal({61, 2, 8}, f32, 3);
        AttentionOptions options{.causal = causal,
                                 .cu_seqlens_q = fences_q,
                                 .cu_seqlens_k = fences_k,
                                 .splits = splits,
                                 .target = target};
        const AttentionResult exact = reference::attention(q, k, v, options);
        const std::int64_t k0 = fences_k.at<std::int32_t>(poisoned),
                           k1 = fences_k.at<std::int32_t>(poisoned + 1);
        const std::int64_t q0 = fences_q.at<std::int32_t>(poisoned),
                           q1 = fences_q.at<std::int32_t>(poisoned + 1);
        for (const Tensor& t : {k, v})
          copy_elements(Tensor::full({k1 - k0, 2, t.size(2)}, f32, std::nan("")), t.slice(0, k0, k1));
        const AttentionResult result = attention(q, k, v, options);
        for (auto [begin, end] :
             {std::pair<std::int64_t, std::int64_t>(0, q0), std::pair<std::int64_t, std::int64_t>(q1, 41)}) {
          const auto difference =
              first_difference(result.out.slice(0, begin, end), exact.out.slice(0, begin, end), 1e-5, 1e-5);
          EXPECT_FALSE(difference) << *difference;
          EXPECT_TRUE(all_close(result.lse.slice(1, begin, end), exact.lse.slice(1, begin, end), 1e-5, 1e-5));
        }
      }
}

TEST(Attention, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 4, 4, 16}, f32), k = Tensor::zeros({1, 6, 2, 16}, f32);
  auto call = [&](const TensorRef& a, const TensorRef& b, const TensorRef& c, AttentionOptions options = {}) {
    return [=] { attention(a, b, c, options); };
  };
  expect_refusal(call(q.select(0, 0), k, k), "argument 'q': expected rank 4");
  expect_refusal(call(q.to(i32), k, k), "argument 'q': expected dtype f32, f16, bf16 or e4m3");
  expect_refusal(call(q, k.to(f16), k), "argument 'k': expected dtype f32");
  expect_refusal(call(q, k, k.slice(1, 0, 5)),
                 "argument 'v': expected [batch, keys, kv_heads, d_v] with keys = 6, as k");
  expect_refusal(call(q, k.slice(3, 0, 8), k),
                 "argument 'k': expected [batch, keys, kv_heads, d] with d = 16, as q");
  expect_refusal(call(q.slice(2, 0, 3), k, k),
                 "argument 'q': expected [batch, queries, kv_heads * group, d] with kv_heads = 2, as k");
  expect_refusal(call(q.expand({2, 4, 4, 16}), k, k),
                 "argument 'k': expected [batch, keys, kv_heads, d] with batch = 2, as q");
  expect_refusal(call(q.slice(3, 0, 16, 2), k, k), "argument 'q': expected a last dimension of stride 1");
  expect_refusal(call(q, k, k, {.scale = -1.f}), "argument 'scale': expected a positive finite number");
  expect_refusal(call(q, k, k, {.left = -2}), "argument 'left': expected a number of keys, or -1");
  expect_refusal(call(q, k, k, {.softcap = -1}), "argument 'softcap': expected a positive number");
  for (int splits : {-1, 65})
    expect_refusal(call(q, k, k, {.splits = splits}), "argument 'splits': expected a number from 1 to 64");
  expect_refusal(call(q, k, k, {.sinks = Tensor::zeros({3}, f32)}),
                 "argument 'sinks': expected [kv_heads * group] with kv_heads = 2, as k, group = 2, as q");
  expect_refusal(call(q, k, k, {.out = Tensor::zeros({1, 4, 4, 8}, f32)}), "argument 'out'");
  expect_refusal(call(q, k, k, {.lse = Tensor::zeros({1, 4, 4}, f16)}), "argument 'lse': expected dtype f32");
  expect_refusal(call(q, k, k, {.tiles = {-1, 0}}), "argument 'tile_queries'");
  const Tensor fences = Tensor::from<std::int32_t>({0, 3, 4}),
               falling = Tensor::from<std::int32_t>({0, 5, 4}),
               beyond = Tensor::from<std::int32_t>({0, 7, 6});
  const Tensor tokens = q.select(0, 0), more = k.select(0, 0);
  expect_refusal(call(tokens, more, more, {.cu_seqlens_q = fences}),
                 "cu_seqlens_q and cu_seqlens_k together");
  expect_refusal(call(tokens, more, more, {.cu_seqlens_q = fences, .cu_seqlens_k = falling}),
                 "given 4 at position 2");
  expect_refusal(call(tokens, more, more, {.cu_seqlens_q = fences, .cu_seqlens_k = beyond}),
                 "given 7 at position 1");
  expect_refusal(call(tokens, more, more, {.cu_seqlens_q = fences, .cu_seqlens_k = fences}),
                 "end with 6 tokens");
  const Tensor ends = Tensor::from<std::int32_t>({0, 1, 6});
  expect_refusal(call(tokens, more, more, {.cu_seqlens_q = fences, .cu_seqlens_k = ends, .max_seqlen_q = 2}),
                 "argument 'max_seqlen_q': expected at least 3, the longest sequence");
  expect_refusal(call(tokens, more, more, {.cu_seqlens_q = fences, .cu_seqlens_k = ends, .max_seqlen_k = 4}),
                 "argument 'max_seqlen_k': expected at least 5, the longest sequence");
  expect_refusal(call(q, k, k, {.max_seqlen_k = 6}), "cu_seqlens_q and cu_seqlens_k as well");
  expect_refusal(call(q, k, k, {.max_seqlen_q = -1}), "expected a number of tokens");
}

}  // namespace attention_test
}  // namespace tegula::ops
