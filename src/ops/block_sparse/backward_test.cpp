// The gradients of block-sparse attention against their formula, over one table, and the formula against
// differences.
#include "ops/block_sparse/backward_call.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/gradients.hpp"

namespace tegula::ops {
namespace block_sparse_backward_test {

enum class Choice { lists, counts, mask };

struct Row {
  std::string name;
  std::int64_t batch = 1, queries = 37, keys = 70, heads = 2, kv_heads = 1, dim = 16, dim_v = 8;
  std::int64_t entries = 4;
  DType type = f32;
  Choice choice = Choice::lists;
  bool per_query_head = false, dlse = false;
  BlockSparseOptions options = {};
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

void add_extents(std::vector<Row>& rows) {
  int n = 0;
  for (int q_block : {1, 16, 64})
    for (int k_block : {1, 5, 16, 65})
      rows.push_back({.name = "blocks",
                      .choice = static_cast<Choice>(n++ % 3),
                      .dlse = k_block == 16,
                      .options = {.q_block_size = q_block, .k_block_size = k_block, .causal = n % 2 == 1}});
  for (std::int64_t group : {1, 3, 8})
    for (bool per_query_head : {false, true})
      rows.push_back({.name = "group",
                      .batch = 2,
                      .heads = 2 * group,
                      .kv_heads = 2,
                      .per_query_head = per_query_head,
                      .options = {.q_block_size = 8, .k_block_size = 16, .causal = true}});
  for (std::int64_t queries : {0, 1, 129})
    for (std::int64_t keys : {0, 1, 129})
      rows.push_back({.name = "sizes",
                      .queries = queries,
                      .keys = keys,
                      .options = {.q_block_size = 64, .k_block_size = 32, .causal = queries == 129}});
}

void add_other_rows(std::vector<Row>& rows) {
  for (DType type : {f16, bf16})
    rows.push_back(
        {.name = "type", .type = type, .dlse = true, .options = {.q_block_size = 16, .k_block_size = 16}});
  rows.push_back({.name = "no entries", .entries = 0, .options = {.q_block_size = 16, .k_block_size = 16}});
  rows.push_back(
      {.name = "softcap", .options = {.q_block_size = 16, .k_block_size = 16, .scale = 0.7f, .softcap = 2}});
  rows.push_back({.name = "split blocks",
                  .queries = 200,
                  .keys = 90,
                  .options = {.q_block_size = 200, .k_block_size = 90, .causal = true, .tiles = {64, 32}}});
  // Several chunks of rows and lists.
  rows.push_back({.name = "many lists",
                  .queries = 70,
                  .keys = 4200,
                  .heads = 1,
                  .entries = 9,
                  .options = {.q_block_size = 2, .k_block_size = 16}});
  // Few tiles of keys with long lists, which a GPU divides, and many, of which it begins with the longest.
  for (DType type : {f32, bf16})
    rows.push_back({.name = "splits",
                    .queries = 2100,
                    .keys = 120,
                    .entries = 2,
                    .type = type,
                    .choice = type == f32 ? Choice::counts : Choice::mask,
                    .per_query_head = type == f32,
                    .options = {.q_block_size = 64, .k_block_size = 64}});
  rows.push_back({.name = "longest first",
                  .batch = 7,
                  .queries = 520,
                  .keys = 150,
                  .heads = 8,
                  .kv_heads = 4,
                  .dim = 8,
                  .entries = 13,
                  .options = {.q_block_size = 16, .k_block_size = 16, .causal = true}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_extents(rows);
  add_other_rows(rows);
  return in_both_layouts(rows, 5);
}

Shape shape_of(const Row& row, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  if (row.options.layout == Layout::bhsd) return {row.batch, heads, tokens, dim};
  return {row.batch, tokens, heads, dim};
}

std::int64_t blocks(std::int64_t extent, int block) { return (extent + block - 1) / block; }

Tensor random_choice(const Row& row, std::int64_t entries, std::int64_t low, std::int64_t high) {
  const std::int64_t heads = row.per_query_head ? row.heads : row.kv_heads;
  return Tensor::random_integers({row.batch, heads, blocks(row.queries, row.options.q_block_size), entries},
                                 i32, 5, low, high);
}

// Arguments among values that must not be read; lists with gaps, repetitions, entries that name no block, and
// no order.
struct Given {
  Planted q, k, v, dout, out, lse, dlse, indices, counts, mask;
  BlockSparseOptions options;

  explicit Given(const Row& row)
      : q(Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim), row.type, 1)),
        k(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim), row.type, 2)),
        v(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim_v), row.type, 3)),
        dout(Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim_v), row.type, 4)),
        out(shape_of(row, row.queries, row.heads, row.dim_v), row.type),
        lse({row.batch, row.heads, row.queries}, f32),
        dlse(Tensor::random_normal({row.batch, row.heads, row.queries}, f32, 6)),
        indices(random_choice(row, row.entries, -2, blocks(row.keys, row.options.k_block_size) + 2)),
        counts(random_choice(row, 1, -1, row.entries + 2).select(3, 0)),
        mask(random_choice(row, blocks(row.keys, row.options.k_block_size), 0, 2).to(boolean)),
        options(row.options) {
    if (row.choice == Choice::mask)
      options.mask = mask.inside;
    else
      options.indices = indices.inside;
    if (row.choice == Choice::counts) options.counts = counts.inside;
    if (row.entries > 1 && indices.inside.nelements() > 0)
      indices.inside.ref().set({0, 0, 0, 0}, std::numeric_limits<std::int32_t>::min());
    const AttentionResult result = reference::block_sparse_attention(q.inside, k.inside, v.inside, options);
    copy_elements(result.out, out.inside);
    copy_elements(result.lse, lse.inside);
  }
};

class BlockSparseBackwardRows : public testing::TestWithParam<Row> {};

TEST_P(BlockSparseBackwardRows, AgreeWithTheFormula) {
  const Row& row = GetParam();
  for (Target target : test_targets()) {
    SCOPED_TRACE(row.name + " " + std::to_string(row.queries) + " x " + std::to_string(row.keys) +
                 " blocks " + std::to_string(row.options.q_block_size) + " x " +
                 std::to_string(row.options.k_block_size) + " " + std::string(target.name()));
    Given in(row);
    in.options.target = target;
    const PlantedGradients results(in.q.inside, in.k.inside, in.v.inside, row.type);
    BlockSparseBackwardOptions more{
        .dq = results.dq.inside, .dk = results.dk.inside, .dv = results.dv.inside};
    if (row.dlse) more.dlse = in.dlse.inside;
    auto call = [&] {
      block_sparse_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside, in.out.inside,
                                      in.lse.inside, in.options, more);
    };
    call();
    auto by_formula = [&](DType steps) {
      return reference::block_sparse_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                                        in.options, more.dlse, steps);
    };
    const AttentionGradients exact = by_formula(f64), plain = by_formula(row.type);
    expect_gradients(results.inside(), exact, plain, row.type);
    EXPECT_TRUE(results.are_clean_outside());
    results.expect_again(call);
  }
}

// The program for GPUs, as the interpreter understands it.
TEST_P(BlockSparseBackwardRows, AgreeWithTheFormulaAsPlannedForGpus) {
  const Row& row = GetParam();
  Given in(row);
  in.options.target = Target::interpreter();
  std::optional<TensorRef> dlse;
  if (row.dlse) dlse = in.dlse.inside;
  PlannedCall planned(block_sparse_attention_backward_schema(), BlockSparseBackward{in.options,
                                                                                    {.dlse = dlse},
                                                                                    in.dout.inside,
                                                                                    in.q.inside,
                                                                                    in.k.inside,
                                                                                    in.v.inside,
                                                                                    in.out.inside,
                                                                                    in.lse.inside});
  if (!planned.bound.is_empty())
    run_block_sparse_backward(block_sparse_backward_call(Bound<BlockSparseBackward>(planned.bound), true),
                              planned.launch);
  auto by_formula = [&](DType steps) {
    return reference::block_sparse_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                                      in.options, dlse, steps);
  };
  const AttentionGradients exact = by_formula(f64), plain = by_formula(row.type);
  expect_gradients(gradients_of(planned.bound), exact, plain, row.type);
}

INSTANTIATE_TEST_SUITE_P(Table, BlockSparseBackwardRows, testing::ValuesIn(table()));

// The formula's gradients are compared with differences: its forward is changed in one element at a time.
TEST(BlockSparseBackward, FormulaAgreesWithDifferences) {
  for (const Row& row : table()) {
    if (row.type != f32 || row.queries * row.keys == 0 || row.queries * row.keys * row.batch > 4000) continue;
    SCOPED_TRACE(row.name);
    const Given in(row);
    const Tensor q = in.q.inside.to(f64), k = in.k.inside.to(f64), v = in.v.inside.to(f64),
                 dlse = row.dlse ? in.dlse.inside : Tensor::zeros(in.dlse.inside.shape(), f32);
    const AttentionGradients exact =
        reference::block_sparse_attention_backward(in.dout.inside, q, k, v, in.options, dlse.ref());
    const auto loss = [&] {
      const AttentionResult result = reference::block_sparse_attention(q, k, v, in.options);
      return sum_of_products(result.out, in.dout.inside) + sum_of_products(result.lse, dlse);
    };
    expect_differences(q, k, v, exact, loss);
  }
}

// A key that nobody chose has a gradient of zero, exactly.
TEST(BlockSparseBackward, LeavesOtherBlocksAtZero) {
  const Tensor q = Tensor::random_normal({1, 20, 1, 16}, f32, 1),
               k = Tensor::random_normal({1, 64, 1, 16}, f32, 2);
  const Tensor indices = Tensor::from<std::int32_t>({3, 1, 3, -1}, {1, 1, 1, 4});
  for (Target target : test_targets()) {
    const BlockSparseOptions options{
        .q_block_size = 32, .k_block_size = 16, .indices = indices, .target = target};
    const AttentionResult forward = block_sparse_attention(q, k, k, options);
    const BlockSparseGradients result =
        block_sparse_attention_backward(q, q, k, k, forward.out, forward.lse, options);
    for (const Tensor& t : {result.dk, result.dv})
      for (int block : {0, 2})
        for (double x : t.slice(1, 16 * block, 16 * block + 16).values<double>()) EXPECT_EQ(x, 0);
  }
}

TEST(BlockSparseBackward, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 20, 4, 16}, f32), k = Tensor::zeros({1, 30, 2, 16}, f32);
  const Tensor indices = Tensor::zeros({1, 2, 3, 2}, i32), lse = Tensor::zeros({1, 4, 20}, f32);
  auto call = [&](const TensorRef& dout, const TensorRef& of_lse, BlockSparseOptions options,
                  BlockSparseBackwardOptions more = {}) {
    options.q_block_size = 8, options.k_block_size = 10;
    return [=] { block_sparse_attention_backward(dout, q, k, k, q, of_lse, options, more); };
  };
  const std::string name = "block_sparse_attention_backward, argument ";
  expect_refusal(call(q, lse, {}), name + "'indices': expected either indices or mask");
  expect_refusal(call(q.slice(1, 0, 19), lse, {.indices = indices}),
                 name + "'dout': expected [batch, queries, kv_heads * group, d_v] with queries = 20, as q");
  expect_refusal(call(q, lse.to(f16), {.indices = indices}), name + "'lse': expected dtype f32");
  expect_refusal(call(q, lse, {.indices = indices}, {.dv = q}),
                 name + "'dv': expected [batch, keys, kv_heads, d_v] = [1, 30, 2, 16]");
  const Tensor own = Tensor::zeros({1, 30, 2, 16}, f32), dout = q.clone();
  const std::string apart = "': expected its own memory, not that of ";
  expect_refusal(call(q, lse, {.indices = indices}, {.dk = own.ref(), .dv = own.ref()}),
                 name + "'dk" + apart + "dv");
  expect_refusal(call(dout, lse, {.indices = indices}, {.dq = dout.ref()}), name + "'dq" + apart + "dout");
  expect_refusal(call(dout, lse, {.indices = indices}, {.dv = k.ref()}), name + "'dv" + apart + "k");
}

}  // namespace block_sparse_backward_test
}  // namespace tegula::ops
