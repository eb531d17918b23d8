// Block-sparse attention against its formula, over one table.
#include "ops/block_sparse/call.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace block_sparse_test {

enum class Choice { lists, counts, mask, ascending };

struct Row {
  std::string name;
  std::int64_t batch = 1, queries = 37, keys = 70, heads = 2, kv_heads = 1, dim = 16, dim_v = 8;
  std::int64_t entries = 4;
  DType type = f32;
  Choice choice = Choice::lists;
  bool per_query_head = false;
  BlockSparseOptions options = {};
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

void add_blocks(std::vector<Row>& rows) {
  for (int q_block : {1, 3, 16, 64})
    for (int k_block : {1, 5, 16, 33, 64, 65, 200})
      for (Choice choice : {Choice::lists, Choice::counts, Choice::mask})
        rows.push_back(
            {.name = "blocks",
             .choice = choice,
             .options = {
                 .q_block_size = q_block, .k_block_size = k_block, .causal = (q_block + k_block) % 2 == 1}});
  for (int q_block : {3, 16, 64})
    for (int k_block : {5, 16, 64, 65})
      for (bool causal : {false, true})
        rows.push_back(
            {.name = "ascending",
             .heads = 2,
             .choice = Choice::ascending,
             .per_query_head = q_block == 16,
             .options = {
                 .q_block_size = q_block, .k_block_size = k_block, .causal = causal, .ascending = true}});
}

void add_calls(std::vector<Row>& rows) {
  for (std::int64_t group : {1, 2, 3, 8})
    for (bool per_query_head : {false, true})
      rows.push_back({.name = "group",
                      .batch = 2,
                      .heads = 2 * group,
                      .kv_heads = 2,
                      .per_query_head = per_query_head,
                      .options = {.q_block_size = 8, .k_block_size = 16, .causal = true}});
  for (std::int64_t queries : {0, 1, 70, 127, 129})
    for (std::int64_t keys : {0, 1, 129})
      rows.push_back({.name = "sizes",
                      .queries = queries,
                      .keys = keys,
                      .options = {.q_block_size = 64, .k_block_size = 32, .causal = queries == 127}});
  for (DType type : {f16, bf16})
    for (int q_block : {4, 130})
      rows.push_back(
          {.name = "type", .type = type, .options = {.q_block_size = q_block, .k_block_size = 16}});
  rows.push_back({.name = "no entries", .entries = 0, .options = {.q_block_size = 16, .k_block_size = 16}});
  rows.push_back(
      {.name = "softcap", .options = {.q_block_size = 16, .k_block_size = 16, .scale = 0.7f, .softcap = 2}});
  rows.push_back({.name = "split blocks",
                  .queries = 300,
                  .keys = 90,
                  .options = {.q_block_size = 300, .k_block_size = 90, .causal = true, .tiles = {64, 32}}});
}

void add_divided_blocks(std::vector<Row>& rows) {
  // The first query stands at a multiple of the tiles of keys, or not, or before the first key.
  for (int q_block : {16, 64, 96})
    for (int k_block : {64, 96})
      for (std::int64_t keys : {100, 164, 130, 60})
        rows.push_back({.name = "diagonal blocks in several tiles",
                        .queries = 100,
                        .keys = keys,
                        .options = {.q_block_size = q_block, .k_block_size = k_block, .causal = true}});
  for (std::int64_t keys : {100, 128, 130, 161})
    rows.push_back({.name = "a last block in several tiles",
                    .keys = keys,
                    .options = {.q_block_size = 64, .k_block_size = 96}});
  rows.push_back({.name = "more blocks than a chunk",
                  .queries = 4,
                  .keys = 1100,
                  .heads = 1,
                  .entries = 40,
                  .options = {.q_block_size = 2, .k_block_size = 1}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_blocks(rows);
  add_calls(rows);
  add_divided_blocks(rows);
  return in_both_layouts(rows, 5);
}

Shape shape_of(const Row& row, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  if (row.options.layout == Layout::bhsd) return {row.batch, heads, tokens, dim};
  return {row.batch, tokens, heads, dim};
}

// Lists with gaps, repetitions, entries that name no block, and no order.
struct Lists {
  Planted indices, counts, mask;

  explicit Lists(const Row& row)
      : indices(row.choice == Choice::ascending
                    ? ascending(row)
                    : random(row, row.entries, -2, blocks(row.keys, row.options.k_block_size) + 2)),
        counts(row.choice == Choice::ascending ? lengths(row)
                                               : random(row, 1, -1, row.entries + 2).select(3, 0)),
        mask(random(row, blocks(row.keys, row.options.k_block_size), 0, 2).to(boolean)) {}

  static std::int64_t blocks(std::int64_t extent, int block) { return (extent + block - 1) / block; }
  static Tensor random(const Row& row, std::int64_t entries, std::int64_t low, std::int64_t high) {
    const std::int64_t heads = row.per_query_head ? row.heads : row.kv_heads;
    return Tensor::random_integers({row.batch, heads, blocks(row.queries, row.options.q_block_size), entries},
                                   i32, 5, low, high);
  }
  // How many blocks of keys some query of the row sees.
  static std::int64_t seen(const Row& row, std::int64_t n) {
    const BlockSparseOptions& o = row.options;
    const std::int64_t end = std::min((n + 1) * o.q_block_size, row.queries) + row.keys - row.queries;
    return blocks(o.causal ? std::clamp(end, std::int64_t{0}, row.keys) : row.keys, o.k_block_size);
  }
  // Every second block and the last ones, and behind them what does not count.
  static Tensor ascending(const Row& row) {
    const Tensor lists = random(row, row.entries, -2, 100), used = lengths(row);
    for (std::int64_t h = 0; h < lists.size(1); ++h)
      for (std::int64_t n = 0; n < lists.size(2); ++n)
        for (std::int64_t i = 0, count = std::int64_t(used.get({0, h, n})); i < count; ++i)
          lists.set({0, h, n, i}, double(std::min(2 * i, seen(row, n) - count + i)));
    return lists;
  }
  static Tensor lengths(const Row& row) {
    const Tensor result = random(row, 1, 0, 1).select(3, 0).clone();
    for (std::int64_t h = 0; h < result.size(1); ++h)
      for (std::int64_t n = 0; n < result.size(2); ++n)
        result.set({0, h, n}, double(std::min(row.entries, seen(row, n))));
    return result;
  }
  void give(const Row& row, BlockSparseOptions& options) const {
    if (row.choice == Choice::mask)
      options.mask = mask.inside;
    else
      options.indices = indices.inside;
    if (row.choice == Choice::counts || row.choice == Choice::ascending) options.counts = counts.inside;
  }
};

class BlockSparseRows : public testing::TestWithParam<Row> {};

using Call = std::function<void(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                const BlockSparseOptions& options)>;

void expect_formula(const Row& row, const std::vector<Target>& targets, const Call& call) {
  for (Target target : targets) {
    SCOPED_TRACE(row.name + " " + std::to_string(row.queries) + " x " + std::to_string(row.keys) +
                 " blocks " + std::to_string(row.options.q_block_size) + " x " +
                 std::to_string(row.options.k_block_size) + " " +
                 std::to_string(static_cast<int>(row.choice)) + " " + std::string(target.name()));
    const Planted q(Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim), row.type, 1)),
        k(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim), row.type, 2)),
        v(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim_v), row.type, 3)),
        out(shape_of(row, row.queries, row.heads, row.dim_v), row.type),
        lse({row.batch, row.heads, row.queries}, f32);
    const Lists lists(row);
    BlockSparseOptions options = row.options;
    lists.give(row, options);
    options.out = out.inside, options.lse = lse.inside, options.target = target;
    call(q.inside, k.inside, v.inside, options);
    const AttentionResult exact = reference::block_sparse_attention(q.inside, k.inside, v.inside, options),
                          plain = reference::block_sparse_attention(q.inside, k.inside, v.inside, options,
                                                                    row.type);
    expect_close("out", out.inside, exact.out, plain.out, row.type);
    expect_close("lse", lse.inside, exact.lse, plain.lse, f32);
    EXPECT_TRUE(out.is_clean_outside() && lse.is_clean_outside());
  }
}

TEST_P(BlockSparseRows, AgreeWithTheFormula) {
  expect_formula(GetParam(), test_targets(), [](const auto&... all) { block_sparse_attention(all...); });
}

// The program for GPUs, as the interpreter understands it.
TEST_P(BlockSparseRows, AgreeWithTheFormulaAsPlannedForGpus) {
  expect_formula(
      GetParam(), {Target::interpreter()},
      [](const TensorRef& q, const TensorRef& k, const TensorRef& v, const BlockSparseOptions& options) {
        PlannedCall call(block_sparse_attention_schema(), BlockSparse{options, q, k, v});
        if (!call.bound.is_empty())
          run_block_sparse(block_sparse_call(call.bound, call.op, true), call.launch);
      });
}

INSTANTIATE_TEST_SUITE_P(Table, BlockSparseRows, testing::ValuesIn(table()));

// Blocks that are not chosen are never read into the result.
TEST(BlockSparse, LeavesOtherBlocksAlone) {
  for (Target target : test_targets())
    for (int k_block : {4, 64}) {
      const Tensor q = Tensor::random_normal({1, 10, 1, 16}, f32, 1);
      const Tensor k = Tensor::full({1, 4 * k_block, 1, 16}, f32, std::nan("")), v = k.clone();
      for (const Tensor& t : {k, v})
        for (int block : {1, 3})
          copy_elements(Tensor::random_normal({1, k_block, 1, 16}, f32, 2),
                        t.slice(1, block * k_block, (block + 1) * k_block));
      const Tensor indices = Tensor::from<std::int32_t>({3, 1, 3, -1}, {1, 1, 1, 4});
      const AttentionResult result = block_sparse_attention(
          q, k, v, {.q_block_size = 16, .k_block_size = k_block, .indices = indices, .target = target});
      for (double x : result.out.values<double>()) EXPECT_TRUE(std::isfinite(x));
    }
}

TEST(BlockSparse, ThinFormIsTheSame) {
  const Tensor q = Tensor::random_normal({1, 20, 2, 16}, f32, 1),
               k = Tensor::random_normal({1, 30, 1, 16}, f32, 2);
  const Tensor indices = Tensor::from<std::int32_t>({2, 0, 1, -1, 1, 2}, {1, 1, 3, 2});
  const AttentionResult thin = block_sparse_attention(q, k, k, 8, 10, indices);
  const AttentionResult full =
      block_sparse_attention(q, k, k, {.q_block_size = 8, .k_block_size = 10, .indices = indices});
  EXPECT_TRUE(equal(thin.out, full.out) && equal(thin.lse, full.lse));
}

TEST(BlockSparse, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 20, 4, 16}, f32), k = Tensor::zeros({1, 30, 2, 16}, f32);
  const Tensor indices = Tensor::zeros({1, 2, 3, 2}, i32), mask = Tensor::zeros({1, 2, 3, 3}, boolean);
  auto call = [&](BlockSparseOptions options) {
    options.q_block_size = options.q_block_size == 64 ? 8 : options.q_block_size;
    options.k_block_size = options.k_block_size == 64 ? 10 : options.k_block_size;
    return [=] { block_sparse_attention(q, k, k, options); };
  };
  expect_refusal(call({}), "argument 'indices': expected either indices or mask, given none");
  expect_refusal(call({.indices = indices, .mask = mask}), "expected either indices or mask");
  expect_refusal(call({.q_block_size = 0, .indices = indices}),
                 "argument 'q_block_size': expected a block size");
  expect_refusal(call({.q_block_size = 5, .indices = indices}), "with queries = 20, as q, q_block_size = 5");
  expect_refusal(call({.indices = indices.to(f32)}), "argument 'indices': expected dtype i32");
  expect_refusal(call({.indices = indices.slice(1, 0, 1).expand({1, 3, 3, 2})}),
                 "expected 4 heads, as q, or 2, as k");
  expect_refusal(call({.k_block_size = 7, .mask = mask}), "keys = 30, as k, k_block_size = 7");
  expect_refusal(call({.counts = Tensor::zeros({1, 2, 3}, i32), .mask = mask}), "counts with indices only");
  expect_refusal(call({.indices = indices, .counts = Tensor::zeros({1, 4, 3}, i32)}), "argument 'counts'");
  const Tensor wrong = indices.clone();
  wrong.set({0, 1, 2, 1}, 3);
  expect_refusal(
      call({.indices = wrong, .check_indices = true}),
      "argument 'indices': expected -1 or a number below 3, that of the blocks of keys, given 3 at "
      "[0, 1, 2, 1]");
  expect_refusal(
      call({.indices = indices, .ascending = true, .check_indices = true}),
      "argument 'indices': expected ascending numbers below 3, that of the blocks of keys, given 0 at "
      "[0, 0, 0, 1]");
  expect_refusal(call({.mask = mask, .ascending = true}), "argument 'ascending': expected indices");
}

// The first wrong entry is named; entries of rows that a sequence has not, and those that do not count, may
// be anything.
TEST(BlockSparse, ChecksIndicesOfPackedSequences) {
  const Tensor q = Tensor::zeros({45, 4, 16}, f32), k = Tensor::zeros({80, 2, 16}, f32);
  const Tensor fences_q = Tensor::from<std::int32_t>({0, 20, 20, 45}),
               fences_k = Tensor::from<std::int32_t>({0, 30, 70, 80});
  for (Target target : test_targets()) {
    const Tensor indices = Tensor::full({3, 2, 4, 2}, i32, -1), counts = Tensor::full({3, 2, 4}, i32, 2);
    auto call = [&] {
      block_sparse_attention(q, k, k,
                             {.q_block_size = 8,
                              .k_block_size = 10,
                              .indices = indices,
                              .counts = counts,
                              .cu_seqlens_q = fences_q,
                              .cu_seqlens_k = fences_k,
                              .check_indices = true,
                              .target = target});
    };
    indices.set({0, 1, 2, 1}, 2);   // the last block of the first sequence
    indices.set({0, 1, 3, 0}, 77);  // which has three rows
    indices.set({1, 0, 0, 0}, -9);  // which has none
    EXPECT_EQ(refusal(call), "not refused");
    indices.set({2, 1, 3, 1}, 1);
    expect_refusal(
        call,
        "argument 'indices': expected -1 or a number below 1, that of the blocks of keys, given 1 at "
        "[2, 1, 3, 1]");
    counts.set({2, 1, 3}, 1);
    EXPECT_EQ(refusal(call), "not refused");
    indices.set({0, 0, 1, 0}, 3);
    expect_refusal(call, "a number below 3, that of the blocks of keys, given 3 at [0, 0, 1, 0]");
  }
}

TEST(BlockSparse, RefusesWrongPackedCalls) {
  const Tensor q = Tensor::zeros({45, 4, 16}, f32), k = Tensor::zeros({80, 2, 16}, f32);
  const Tensor fences_q = Tensor::from<std::int32_t>({0, 20, 45}),
               fences_k = Tensor::from<std::int32_t>({0, 50, 80});
  const Tensor indices = Tensor::zeros({2, 2, 4, 2}, i32), mask = Tensor::zeros({2, 4, 5, 5}, boolean);
  auto call = [&](BlockSparseOptions options, const std::optional<TensorRef>& of_q = {}) {
    options.q_block_size = 8, options.k_block_size = 10;
    if (!options.cu_seqlens_q) options.cu_seqlens_q = fences_q;
    if (!options.cu_seqlens_k) options.cu_seqlens_k = fences_k;
    return [=] { block_sparse_attention(of_q ? *of_q : q.ref(), k, k, options); };
  };
  EXPECT_EQ(refusal(call({.indices = indices})), "not refused");
  EXPECT_EQ(refusal(call({.mask = mask, .max_seqlen_q = 25, .max_seqlen_k = 50})), "not refused");
  const std::string name = "block_sparse_attention, argument ";
  expect_refusal(call({.indices = indices}, q.ref().expand({1, 45, 4, 16})), name + "'q': expected rank 3");
  expect_refusal(call({.indices = indices, .cu_seqlens_q = Tensor::from<std::int32_t>({0, 20, 44})}),
                 name + "'cu_seqlens_q': expected numbers that start with 0");
  expect_refusal(call({.indices = indices, .cu_seqlens_k = Tensor::from<std::int32_t>({0, 50, 70, 80})}),
                 name + "'cu_seqlens_k': expected [sequences + 1] with sequences = 2");
  expect_refusal(call({.indices = indices, .max_seqlen_q = 24}),
                 name + "'max_seqlen_q': expected at least 25, the longest sequence");
  expect_refusal(call({.indices = indices.slice(0, 0, 1)}),
                 name + "'cu_seqlens_q': expected [sequences + 1] with sequences = 1, as indices");
  expect_refusal(call({.indices = indices.slice(2, 0, 3)}),
                 name + "'indices': expected a row for every block of queries of the longest sequence");
  expect_refusal(call({.indices = indices.slice(1, 0, 1)}), name + "'indices': expected 4 heads, as q");
  expect_refusal(call({.mask = mask.slice(3, 0, 4)}),
                 name + "'mask': expected all blocks of keys of the longest sequence");
  expect_refusal(call({.indices = indices, .counts = Tensor::zeros({2, 2, 5}, i32)}),
                 name + "'counts': expected [sequences, choosers, q_blocks] with");
  // Lengths that are not known: all tokens need a row.
  auto there = [](TensorRef tensor) {
    tensor.device = Device::cuda();
    return tensor;
  };
  expect_refusal(
      [&] {
        block_sparse_attention(there(q), there(k), there(k),
                               {.q_block_size = 8,
                                .indices = there(indices.slice(2, 0, 2)),
                                .cu_seqlens_q = there(fences_q),
                                .cu_seqlens_k = there(fences_k)});
      },
      "expected a row for every block of queries of the longest sequence");
  const Tensor batch = Tensor::zeros({1, 20, 4, 16}, f32), one = Tensor::zeros({1, 4, 3, 2}, i32);
  auto unpacked = [&](BlockSparseOptions options) {
    options.q_block_size = 8, options.k_block_size = 10, options.indices = one;
    return [=] { block_sparse_attention(batch, batch, batch, options); };
  };
  expect_refusal(unpacked({.max_seqlen_q = 4}), "cu_seqlens_q and cu_seqlens_k as well");
  expect_refusal(unpacked({.cu_seqlens_q = Tensor::from<std::int32_t>({0, 20})}),
                 "argument 'cu_seqlens_q': expected cu_seqlens_q and cu_seqlens_k together");
}

}  // namespace block_sparse_test
}  // namespace tegula::ops
