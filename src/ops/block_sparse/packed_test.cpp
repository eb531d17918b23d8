// Block-sparse attention of packed sequences, forward and backward, against its formula, over one table.
#include "ops/block_sparse/backward_call.hpp"
#include "ops/decode/testing/call.hpp"
#include "ops/reference/reference.hpp"
#include "ops/schema/example.hpp"
#include "ops/testing/gradients.hpp"

namespace tegula::ops {
namespace block_sparse_packed_test {

enum class Choice { lists, counts, mask };
using Lengths = std::vector<std::int32_t>;

struct Row {
  std::string name;
  Lengths queries = {19, 0, 5, 70, 1}, keys = {70, 20, 0, 66, 3};
  std::int64_t heads = 2, kv_heads = 1, dim = 16, dim_v = 8, entries = 3;
  DType type = f32;
  Choice choice = Choice::lists;
  bool per_query_head = false, dlse = false;
  bool on_cpu = true, gradients_on_cpu = true;  // compiled, which takes a second for each instance
  std::int64_t more_blocks = 0;                 // than the longest sequence has
  // For gradients on a GPU: what its plan takes for larger calls only.
  int splits = 1;
  bool longest_first = false, one_pass = false;
  BlockSparseOptions options = {};

  std::string text() const {
    return name + " blocks " + std::to_string(options.q_block_size) + " x " +
           std::to_string(options.k_block_size) + " choice " + std::to_string(static_cast<int>(choice)) +
           " heads " + std::to_string(heads) + " of " + std::to_string(kv_heads) +
           (per_query_head ? " each " : " ") + std::string(type.name()) + (options.causal ? " causal" : "");
  }
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.text(); }

void add_blocks(std::vector<Row>& rows) {
  struct Heads {
    std::int64_t heads, kv_heads;
    bool each;
  };
  const std::vector<Heads> heads{{2, 2, false}, {3, 1, false}, {2, 1, true}};
  const std::vector<DType> types{f32, bf16, f32, f16, f32};
  std::size_t n = 0;
  for (bool causal : {false, true})
    for (int q_block : {1, 16, 64, 100})
      for (int k_block : {1, 16, 64, 100}) {
        const Heads& of = heads[n / 3 % heads.size()];
        rows.push_back({.name = "blocks",
                        .heads = of.heads,
                        .kv_heads = of.kv_heads,
                        .type = types[n % types.size()],
                        .choice = static_cast<Choice>(n % 3),
                        .per_query_head = of.each,
                        .dlse = n % 2 == 0,
                        .on_cpu = n % 2 == 0,
                        .gradients_on_cpu = n % 4 == 0,
                        .more_blocks = static_cast<std::int64_t>(n % 3),
                        .options = {.q_block_size = q_block, .k_block_size = k_block, .causal = causal}});
        ++n;
      }
}

void add_sizes(std::vector<Row>& rows) {
  const std::vector<std::pair<Lengths, Lengths>> sizes{{{}, {}},
                                                       {{0}, {0}},
                                                       {{0, 0, 0}, {5, 0, 9}},
                                                       {{7, 9}, {0, 0}},
                                                       {{1, 1, 1, 1}, {90, 1, 33, 64}},
                                                       {{129}, {200}},
                                                       {{0, 0, 65, 0}, {0, 0, 63, 40}},
                                                       {{64, 128, 64}, {64, 128, 192}},
                                                       {{100, 3}, {30, 120}}};
  for (const auto& [queries, keys] : sizes)
    for (bool causal : {false, true})
      rows.push_back({.name = "sizes",
                      .queries = queries,
                      .keys = keys,
                      .choice = causal ? Choice::counts : Choice::mask,
                      .options = {.q_block_size = 64, .k_block_size = 32, .causal = causal}});
}

// Lists with rows for far more blocks of queries than there are, of which others are launched.
void add_unused_rows(std::vector<Row>& rows) {
  const Lengths queries{3, 0, 1, 70, 0, 2, 0, 0, 9, 1, 0, 0}, keys{9, 4, 1, 81, 0, 0, 3, 0, 40, 1, 2, 0};
  const auto add = [&](Choice choice, bool each, const BlockSparseOptions& options) {
    rows.push_back({.name = "unused rows",
                    .queries = queries,
                    .keys = keys,
                    .choice = choice,
                    .per_query_head = each,
                    .on_cpu = false,
                    .gradients_on_cpu = false,
                    .more_blocks = 30,
                    .options = options});
  };
  add(Choice::lists, false, {.q_block_size = 4, .k_block_size = 16});
  add(Choice::counts, true, {.q_block_size = 4, .k_block_size = 16, .causal = true});
  add(Choice::mask, false, {.q_block_size = 5, .k_block_size = 8, .causal = true, .tiles = {2, 8}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_blocks(rows);
  add_sizes(rows);
  for (Layout layout : {Layout::bshd, Layout::bhsd})
    rows.push_back({.name = "softcap",
                    .options = {.layout = layout,
                                .q_block_size = 16,
                                .k_block_size = 16,
                                .causal = layout == Layout::bhsd,
                                .scale = 0.7f,
                                .softcap = 2}});
  rows.push_back({.name = "no entries", .entries = 0, .options = {.q_block_size = 16, .k_block_size = 16}});
  // Blocks in several tiles, and tiles that do not divide them.
  for (bool causal : {false, true})
    rows.push_back(
        {.name = "split blocks",
         .queries = {200, 90, 31},
         .keys = {90, 200, 100},
         .options = {.q_block_size = 200, .k_block_size = 90, .causal = causal, .tiles = {64, 32}}});
  // Several chunks of rows and lists, which begin at odd places.
  rows.push_back({.name = "many lists",
                  .queries = {70, 3, 140},
                  .keys = {4200, 17, 4801},
                  .heads = 1,
                  .entries = 9,
                  .options = {.q_block_size = 2, .k_block_size = 16}});
  add_unused_rows(rows);
  for (bool each : {false, true}) {
    auto add = [&](const char* name, int q_block, int k_block) -> Row& {
      rows.push_back({.name = name,
                      .heads = 6,
                      .kv_heads = 3,
                      .per_query_head = each,
                      .on_cpu = false,
                      .gradients_on_cpu = false,
                      .options = {.q_block_size = q_block, .k_block_size = k_block, .causal = each}});
      return rows.back();
    };
    add("splits", 3, 20).splits = 3;
    add("longest first", 16, 16).longest_first = true;
    add("one pass", 64, 128).one_pass = true;
  }
  return rows;
}

std::vector<Target> targets_of(bool on_cpu) {
  return on_cpu ? test_targets() : std::vector{Target::interpreter()};
}

Tensor fences(const Lengths& lengths) {
  std::vector<std::int32_t> at{0};
  for (std::int32_t length : lengths) at.push_back(at.back() + length);
  return Tensor::from<std::int32_t>(at);
}

std::int64_t sum(const Lengths& lengths) {
  std::int64_t result = 0;
  for (std::int32_t length : lengths) result += length;
  return result;
}

std::int64_t longest(const Lengths& lengths) {
  std::int64_t result = 0;
  for (std::int32_t length : lengths) result = std::max<std::int64_t>(result, length);
  return result;
}

std::int64_t blocks(const Row& row, const Lengths& lengths, int block) {
  return (longest(lengths) + block - 1) / block + row.more_blocks;
}

Tensor random_choice(const Row& row, std::int64_t entries, std::int64_t low, std::int64_t high) {
  const auto sequences = static_cast<std::int64_t>(row.queries.size());
  const std::int64_t heads = row.per_query_head ? row.heads : row.kv_heads;
  return Tensor::random_integers(
      {sequences, heads, blocks(row, row.queries, row.options.q_block_size), entries}, i32, 5, low, high);
}

// Arguments among values that must not be read; lists with gaps, repetitions, entries that name no block of
// their sequence, and no order.
struct Given {
  std::int64_t tokens, all_keys, k_blocks;
  Planted q, k, v, dout, out, lse, dlse, indices, counts, mask;
  Tensor fences_q, fences_k;
  BlockSparseOptions options;
  BlockSparseBackwardOptions more;

  explicit Given(const Row& row)
      : tokens(sum(row.queries)),
        all_keys(sum(row.keys)),
        k_blocks(blocks(row, row.keys, row.options.k_block_size)),
        q(Tensor::random_normal({tokens, row.heads, row.dim}, row.type, 1)),
        k(Tensor::random_normal({all_keys, row.kv_heads, row.dim}, row.type, 2)),
        v(Tensor::random_normal({all_keys, row.kv_heads, row.dim_v}, row.type, 3)),
        dout(Tensor::random_normal({tokens, row.heads, row.dim_v}, row.type, 4)),
        out({tokens, row.heads, row.dim_v}, row.type),
        lse({row.heads, tokens}, f32),
        dlse(Tensor::random_normal({row.heads, tokens}, f32, 6)),
        indices(random_choice(row, row.entries, -2, k_blocks + 2)),
        counts(random_choice(row, 1, -1, row.entries + 2).select(3, 0)),
        mask(random_choice(row, k_blocks, 0, 2).to(boolean)),
        fences_q(fences(row.queries)),
        fences_k(fences(row.keys)),
        options(row.options) {
    if (row.choice == Choice::mask)
      options.mask = mask.inside;
    else
      options.indices = indices.inside;
    if (row.choice == Choice::counts) options.counts = counts.inside;
    options.cu_seqlens_q = fences_q, options.cu_seqlens_k = fences_k;
    if (row.more_blocks == 0) options.max_seqlen_q = longest(row.queries), options.max_seqlen_k = 10000;
    if (row.dlse) more.dlse = dlse.inside;
  }
};

class BlockSparsePacked : public testing::TestWithParam<Row> {};

void expect_forward(const Row& row, Given& in, const std::function<void(const Given& in)>& call) {
  in.options.out = in.out.inside, in.options.lse = in.lse.inside;
  call(in);
  auto by_formula = [&](DType steps) {
    return reference::block_sparse_attention(in.q.inside, in.k.inside, in.v.inside, in.options, steps);
  };
  const AttentionResult exact = by_formula(f64), plain = by_formula(row.type);
  expect_close("out", in.out.inside, exact.out, plain.out, row.type);
  expect_close("lse", in.lse.inside, exact.lse, plain.lse, f32);
  EXPECT_TRUE(in.out.is_clean_outside() && in.lse.is_clean_outside());
}

TEST_P(BlockSparsePacked, AgreesWithTheFormula) {
  const Row& row = GetParam();
  for (Target target : targets_of(row.on_cpu)) {
    SCOPED_TRACE(row.text() + " " + std::string(target.name()));
    Given in(row);
    in.options.target = target;
    expect_forward(row, in, [](const Given& given) {
      block_sparse_attention(given.q.inside, given.k.inside, given.v.inside, given.options);
    });
  }
}

// Lengths that are on a GPU are not known: those that the lists, or the tokens, allow.
void promise_more(const Row& row, const Given& in, BlockSparseCall& call) {
  if (row.more_blocks == 0) return;
  call.longest = std::min(in.tokens, call.choice.size(3) * row.options.q_block_size);
  call.longest_keys = in.all_keys;
  if (call.kernel.mask) call.longest_keys = std::min(in.all_keys, in.k_blocks * row.options.k_block_size);
}

// The program for GPUs, as the interpreter understands it.
TEST_P(BlockSparsePacked, AgreesWithTheFormulaAsPlannedForGpus) {
  const Row& row = GetParam();
  SCOPED_TRACE(row.text());
  Given in(row);
  in.options.target = Target::interpreter();
  expect_forward(row, in, [&](const Given& given) {
    PlannedCall planned(block_sparse_attention_schema(),
                        BlockSparse{given.options, given.q.inside, given.k.inside, given.v.inside});
    BlockSparseCall call = block_sparse_call(planned.bound, planned.op, true);
    promise_more(row, given, call);
    if (!planned.bound.is_empty()) run_block_sparse(call, planned.launch);
  });
}

using Backward = std::function<void(const Given& in, const BlockSparseBackwardOptions& more)>;

void expect_backward(const Row& row, Given& in, const Backward& call) {
  const AttentionResult result =
      reference::block_sparse_attention(in.q.inside, in.k.inside, in.v.inside, in.options);
  copy_elements(result.out, in.out.inside);
  copy_elements(result.lse, in.lse.inside);
  const PlantedGradients results(in.q.inside, in.k.inside, in.v.inside, row.type);
  BlockSparseBackwardOptions more = in.more;
  more.dq = results.dq.inside, more.dk = results.dk.inside, more.dv = results.dv.inside;
  call(in, more);
  auto by_formula = [&](DType steps) {
    return reference::block_sparse_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                                      in.options, in.more.dlse, steps);
  };
  const AttentionGradients exact = by_formula(f64), plain = by_formula(row.type);
  expect_gradients(results.inside(), exact, plain, row.type);
  EXPECT_TRUE(results.are_clean_outside());
  if (!more.deterministic) return;
  results.expect_again([&] { call(in, more); });
}

TEST_P(BlockSparsePacked, GradientsAgreeWithTheFormula) {
  const Row& row = GetParam();
  for (Target target : targets_of(row.gradients_on_cpu)) {
    SCOPED_TRACE(row.text() + " " + std::string(target.name()));
    Given in(row);
    in.options.target = target;
    expect_backward(row, in, [](const Given& given, const BlockSparseBackwardOptions& more) {
      block_sparse_attention_backward(given.dout.inside, given.q.inside, given.k.inside, given.v.inside,
                                      given.out.inside, given.lse.inside, given.options, more);
    });
  }
}

TEST_P(BlockSparsePacked, GradientsAgreeWithTheFormulaAsPlannedForGpus) {
  const Row& row = GetParam();
  SCOPED_TRACE(row.text());
  Given in(row);
  in.options.target = Target::interpreter();
  in.more.deterministic = !row.one_pass;
  expect_backward(row, in, [&](const Given& given, const BlockSparseBackwardOptions& more) {
    PlannedCall planned(
        block_sparse_attention_backward_schema(),
        BlockSparseBackward{given.options, more, given.dout.inside, given.q.inside, given.k.inside,
                            given.v.inside, given.out.inside, given.lse.inside});
    BlockSparseBackwardCall call =
        block_sparse_backward_call(Bound<BlockSparseBackward>(planned.bound), true);
    promise_more(row, given, call.forward);
    call.kernel.splits = row.splits;
    call.kernel.longest_first = row.longest_first, call.kernel.one_pass = row.one_pass;
    if (!planned.bound.is_empty()) run_block_sparse_backward(call, planned.launch);
  });
}

INSTANTIATE_TEST_SUITE_P(Table, BlockSparsePacked, testing::ValuesIn(table()));

// Every sequence by itself is the same call without packing.
TEST(BlockSparse, PackedSequencesAreCallsOfTheirOwn) {
  const Lengths queries{37, 70, 20}, keys{70, 64, 90};
  const Row row{
      .name = "alone", .queries = queries, .keys = keys, .options = {.q_block_size = 16, .k_block_size = 32}};
  Given in(row);
  const AttentionResult all = block_sparse_attention(in.q.inside, in.k.inside, in.v.inside, in.options);
  std::int64_t q_begin = 0, k_begin = 0;
  for (std::size_t b = 0; b < queries.size(); ++b) {
    const std::int64_t q_end = q_begin + queries[b], k_end = k_begin + keys[b],
                       q_blocks = (queries[b] + 15) / 16, sequence = static_cast<std::int64_t>(b);
    auto rows_of = [](const Tensor& t, std::int64_t begin, std::int64_t end) {
      return t.slice(0, begin, end).expand({1, end - begin, t.size(1), t.size(2)});
    };
    BlockSparseOptions own = row.options;
    own.indices = in.indices.inside.slice(0, sequence, sequence + 1).slice(2, 0, q_blocks);
    const AttentionResult one =
        block_sparse_attention(rows_of(in.q.inside, q_begin, q_end), rows_of(in.k.inside, k_begin, k_end),
                               rows_of(in.v.inside, k_begin, k_end), own);
    EXPECT_TRUE(all_close(one.out.select(0, 0), all.out.slice(0, q_begin, q_end), 1e-5, 1e-5));
    EXPECT_TRUE(all_close(one.lse.select(0, 0), all.lse.slice(1, q_begin, q_end), 1e-5, 1e-5));
    q_begin = q_end, k_begin = k_end;
  }
}

bool notes(const ListedCall& call, const std::string& words) {
  return std::ranges::any_of(call.notes,
                             [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

// 64 sequences of 1024 queries have 80 blocks of queries at most, and lists rows for 16 of each.
TEST(BlockSparse, PackedListsWithUnusedRowsListTheirBlocks) {
  struct {
    const char* more;
    bool mostly_unused;
  } const rows[] = {{"sequences=64 q_blocks=16", true},
                    {"sequences=64 q_blocks=16 max_seqlen_q=64", false},
                    {"sequences=2 q_blocks=16", false}};
  const std::string base =
      "queries=1024 keys=1024 kv_heads=1 group=2 d=64 d_v=64 bf16 choosers=1 indices entries=2 cu_seqlens_q "
      "cu_seqlens_k ";
  for (const auto& [more, mostly_unused] : rows) {
    const auto listed = [&](const char* op) {
      const OperatorSchema& schema = find_schema(op);
      const ExampleCall call = ExampleCall::parse(schema, base + more);
      return listed_by_name(schema, call.described(schema), call.options, Target::cuda());
    };
    for (const char* op : {"block_sparse_attention", "block_sparse_attention_backward"}) {
      const ListedCall call = listed(op);
      EXPECT_FALSE(notes(call, "blocks of queries of each of 64 sequences")) << op << " " << more;
      const bool are_listed = std::ranges::any_of(
          call.kernels, [](const auto& own) { return own.name().find("_owned") != std::string::npos; });
      EXPECT_EQ(are_listed, mostly_unused) << op << " " << more;
    }
  }
}

// As threads run the text for Hopper.
TEST(BlockSparse, ListsBlocksThatThereAre) {
  for (const char* op : {"block_sparse_attention", "block_sparse_attention_backward"})
    for (const char* more : {"packing=one_long causal", "packing=rising q_block_size=32 k_block_size=32"}) {
      const decode_test::Call call(
          op,
          std::string("queries=640 keys=640 kv_heads=1 group=2 d=64 d_v=64 bf16 choosers=1 indices entries=3 "
                      "sequences=9 q_blocks=20 k_block_size=64 cu_seqlens_q cu_seqlens_k ") +
              more);
      call.expect_right({Target::emulated_sm90()});
    }
}

}  // namespace block_sparse_packed_test
}  // namespace tegula::ops
