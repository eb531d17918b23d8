// The gradients of dense attention against their formula, over one table, and the formula against
// differences.
#include "ops/reference/reference.hpp"
#include "ops/testing/gradients.hpp"

namespace tegula::ops {
namespace attention_backward_test {

struct Row {
  std::string name;
  std::int64_t batch = 1, queries = 17, keys = 23, heads = 2, kv_heads = 1, dim = 16, dim_v = 8;
  DType type = f32;
  AttentionOptions options = {};
  bool sinks = false, dlse = false, packed = false;
  DType sinks_type = f32;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr AttentionTiles small_tiles{16, 16};

void add_extents(std::vector<Row>& rows) {
  for (std::int64_t queries : {0, 1, 37})
    for (std::int64_t keys : {0, 1, 40})
      rows.push_back({.name = "sizes",
                      .queries = queries,
                      .keys = keys,
                      .options = {.causal = queries == 37, .tiles = small_tiles},
                      .dlse = keys == 40});
  for (std::int64_t group : {1, 3, 4})
    for (AttentionTiles tiles : {AttentionTiles{4, 16}, AttentionTiles{}})
      rows.push_back({.name = "group",
                      .batch = 2,
                      .queries = 9,
                      .heads = group * 2,
                      .kv_heads = 2,
                      .options = {.causal = true, .tiles = tiles}});
  rows.push_back({.name = "features", .dim = 40, .dim_v = 72, .options = {.tiles = small_tiles}});
}

void add_options(std::vector<Row>& rows) {
  for (DType type : {f16, bf16})
    rows.push_back({.name = "type",
                    .queries = 40,
                    .keys = 70,
                    .heads = 4,
                    .kv_heads = 2,
                    .type = type,
                    .options = {.causal = true},
                    .dlse = true});
  for (auto [left, right] : {std::pair(0, 0), std::pair(5, -1), std::pair(-1, 3), std::pair(7, 2)})
    for (std::int64_t keys : {20, 60})
      rows.push_back({.name = "window",
                      .queries = 40,
                      .keys = keys,
                      .options = {.left = left, .right = right, .tiles = small_tiles},
                      .dlse = true});
  rows.push_back({.name = "softcap",
                  .options = {.scale = 0.7f, .causal = true, .softcap = 2, .tiles = small_tiles},
                  .dlse = true});
}

void add_sinks(std::vector<Row>& rows) {
  for (bool packed : {false, true})
    for (bool causal : {false, true})
      rows.push_back({.name = packed ? "packed sequences with sinks" : "sinks",
                      .batch = packed ? 1 : 2,
                      .queries = 41,
                      .keys = 61,
                      .heads = 6,
                      .kv_heads = 2,
                      .options = {.causal = causal, .left = causal ? -1 : 3, .tiles = {4, 16}},
                      .sinks = true,
                      .dlse = causal,
                      .packed = packed,
                      .sinks_type = packed   ? bf16
                                    : causal ? f16
                                             : f32});
}

void add_long_calls(std::vector<Row>& rows) {
  // More heads than begin together, each of several blocks of keys that take turns.
  rows.push_back(
      {.name = "many heads", .queries = 40, .keys = 260, .heads = 18, .kv_heads = 18, .type = bf16});
  // Tiles that are filled up to 128 features.
  for (bool causal : {false, true})
    rows.push_back({.name = "filled up",
                    .batch = 2,
                    .queries = 70,
                    .keys = 130,
                    .heads = 4,
                    .kv_heads = 2,
                    .dim = causal ? 80 : 96,
                    .dim_v = 72,
                    .type = bf16,
                    .options = {.causal = causal}});
  // So many that contributions to dq come one step late, of heads that a block meets in turn. Of the parts
  // that divide the five some have two heads and one has none.
  rows.push_back({.name = "many queries",
                  .queries = 1040,
                  .keys = 70,
                  .heads = 5,
                  .kv_heads = 1,
                  .dim = 40,
                  .dim_v = 24,
                  .type = bf16});
  // The same under a causal mask, which ends earlier blocks of keys behind later ones.
  rows.push_back({.name = "many queries, causal",
                  .queries = 2056,
                  .keys = 300,
                  .heads = 2,
                  .kv_heads = 1,
                  .dim = 40,
                  .dim_v = 24,
                  .type = bf16,
                  .options = {.causal = true}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_extents(rows);
  add_options(rows);
  add_sinks(rows);
  add_long_calls(rows);
  rows.push_back({.name = "no sequences", .batch = 0, .options = {.tiles = small_tiles}});
  return in_both_layouts(rows, 4);
}

Shape shape_of(const Row& row, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  if (row.packed) return {tokens, heads, dim};
  if (row.options.layout == Layout::bhsd) return {row.batch, heads, tokens, dim};
  return {row.batch, tokens, heads, dim};
}

// Arguments of a call, among values that must not be read, and the options that go with them.
struct Given {
  Planted q, k, v, dout, out, lse, dlse;
  Tensor sinks, fences_q = Tensor::from<std::int32_t>({0, 7, 7, 40, 41}),
                fences_k = Tensor::from<std::int32_t>({0, 20, 25, 25, 61});
  AttentionOptions options;

  explicit Given(const Row& row)
      : q(Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim), row.type, 1)),
        k(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim), row.type, 2)),
        v(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim_v), row.type, 3)),
        dout(Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim_v), row.type, 4)),
        out(shape_of(row, row.queries, row.heads, row.dim_v), row.type),
        lse(vector_shape(row), f32),
        dlse(Tensor::random_normal(vector_shape(row), f32, 5)),
        sinks(Tensor::random_normal({row.heads}, row.sinks_type, 6)),
        options(row.options) {
    if (row.sinks) options.sinks = sinks;
    if (row.packed) options.cu_seqlens_q = fences_q, options.cu_seqlens_k = fences_k;
  }
  static Shape vector_shape(const Row& row) {
    return row.packed ? Shape{row.heads, row.queries} : Shape{row.batch, row.heads, row.queries};
  }
  void forward() const {
    const AttentionResult result = reference::attention(q.inside, k.inside, v.inside, options);
    copy_elements(result.out, out.inside);
    copy_elements(result.lse, lse.inside);
  }
};

class AttentionBackwardRows : public testing::TestWithParam<Row> {};

TEST_P(AttentionBackwardRows, AgreeWithTheFormula) {
  const Row& row = GetParam();
  for (Target target : test_targets()) {
    SCOPED_TRACE(row.name + " " + std::to_string(row.queries) + " x " + std::to_string(row.keys) + " " +
                 std::string(row.type.name()) + " " + std::string(target.name()));
    Given in(row);
    in.forward();
    in.options.target = target;
    const PlantedGradients results(in.q.inside, in.k.inside, in.v.inside, row.type);
    AttentionBackwardOptions more{.dq = results.dq.inside, .dk = results.dk.inside, .dv = results.dv.inside};
    if (row.dlse) more.dlse = in.dlse.inside;
    auto call = [&] {
      return attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside, in.out.inside,
                                in.lse.inside, in.options, more);
    };
    const AttentionGradients result = call();
    auto by_formula = [&](DType steps) {
      return reference::attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside, in.options,
                                           more.dlse, steps);
    };
    const AttentionGradients exact = by_formula(f64), plain = by_formula(row.type);
    expect_gradients(results.inside(), exact, plain, row.type);
    expect_close("dsinks", result.dsinks, exact.dsinks, plain.dsinks, f32);
    EXPECT_TRUE(results.are_clean_outside());
    results.expect_again(call);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionBackwardRows, testing::ValuesIn(table()));

// The formula's gradients are compared with differences: its forward is changed in one element at a time.
TEST(AttentionBackward, FormulaAgreesWithDifferences) {
  for (const Row& row : table()) {
    if (row.type != f32 || row.queries * row.keys * row.batch > 2600) continue;
    SCOPED_TRACE(row.name);
    const Given in(row);
    Tensor q = in.q.inside.to(f64), k = in.k.inside.to(f64), v = in.v.inside.to(f64),
           sinks = in.sinks.to(f64);
    AttentionOptions options = in.options;
    if (options.sinks) options.sinks = sinks;
    const Tensor dlse = row.dlse ? in.dlse.inside : Tensor::zeros(in.dlse.inside.shape(), f32);
    const AttentionGradients exact =
        reference::attention_backward(in.dout.inside, q, k, v, options, dlse.ref());
    const auto loss = [&] {
      const AttentionResult result = reference::attention(q, k, v, options);
      return sum_of_products(result.out, in.dout.inside) + sum_of_products(result.lse, dlse);
    };
    expect_differences(q, k, v, exact, loss);
    expect_differences(sinks, exact.dsinks, loss);
  }
}

TEST(AttentionBackward, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 4, 4, 16}, f32), k = Tensor::zeros({1, 6, 2, 16}, f32);
  const Tensor lse = Tensor::zeros({1, 4, 4}, f32);
  auto call = [&](const TensorRef& dout, const TensorRef& out, const TensorRef& of_lse,
                  AttentionBackwardOptions more = {}) {
    return [=] { attention_backward(dout, q, k, k, out, of_lse, {}, more); };
  };
  expect_refusal(call(q.slice(1, 0, 3), q, lse),
                 "attention_backward, argument 'dout': expected [batch, queries, kv_heads * group, d_v] with "
                 "queries = 4, as q");
  expect_refusal(call(q, q.to(f16), lse), "argument 'out': expected dtype f32");
  expect_refusal(call(q, q, lse.to(f16)), "argument 'lse': expected dtype f32");
  expect_refusal(call(q, q, lse.slice(2, 0, 3)),
                 "argument 'lse': expected [batch, kv_heads * group, queries] with queries = 4, as q");
  expect_refusal(call(q, q, lse, {.dlse = lse.select(0, 0)}), "argument 'dlse': expected rank 3");
  expect_refusal(call(q, q, lse, {.dk = q}),
                 "argument 'dk': expected [batch, keys, kv_heads, d] = [1, 6, 2, 16]");
  expect_refusal(call(q, q, lse, {.dsinks = lse}), "argument 'dsinks': expected no tensor unless sinks");
}

}  // namespace attention_backward_test
}  // namespace tegula::ops
