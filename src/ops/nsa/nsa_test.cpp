// Attention over selected blocks against its formula, over one table.
#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/call.hpp"
#include "ops/nsa/testing/arguments.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace nsa_test {

struct Row {
  std::string name;
  std::int64_t batch = 1, tokens = 37, keys = 37, heads = 2, kv_heads = 1, dim = 16, dim_v = 8, entries = 4;
  DType type = f32;
  NsaSelectedOptions options = {};
  bool counts = false, per_query_head = false, packed = false;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

void add_blocks_and_groups(std::vector<Row>& rows) {
  for (int block : {16, 20, 64, 256})
    for (int tokens_of_tile : {1, 3})
      rows.push_back({.name = "block",
                      .tokens = 40,
                      .keys = block == 256 ? 300 : 90,
                      .options = {.block_size = block,
                                  .diagonal = block == 20,
                                  .window = block == 20 ? 9 : 0,
                                  .tiles = {tokens_of_tile, block == 64 ? 32 : 0}},
                      .counts = block == 16});
  for (std::int64_t group : {1, 2, 5, 16})
    for (bool per_query_head : {false, true})
      rows.push_back({.name = "group",
                      .batch = 2,
                      .tokens = 19,
                      .keys = 33,
                      .heads = 2 * group,
                      .kv_heads = 2,
                      .options = {.block_size = 8, .diagonal = group == 2},
                      .counts = group == 5,
                      .per_query_head = per_query_head});
  for (bool causal : {false, true})
    for (bool diagonal : {false, true})
      for (int tokens_of_tile : {1, 4})
        rows.push_back({.name = "repeats",
                        .entries = 7,
                        .options = {.block_size = 16,
                                    .causal = causal,
                                    .diagonal = diagonal,
                                    .repeats = true,
                                    .tiles = {tokens_of_tile, 16}}});
}

void add_other_rows(std::vector<Row>& rows) {
  for (std::int64_t tokens : {0, 1, 30})
    for (std::int64_t keys : {0, 1, 21})
      rows.push_back({.name = "sizes",
                      .tokens = tokens,
                      .keys = keys,
                      .options = {.block_size = 16, .diagonal = true, .window = 5, .tiles = {2, 16}}});
  for (DType type : {f16, bf16})
    rows.push_back({.name = "type", .type = type, .options = {.block_size = 16, .scale = 0.3f}});
  for (bool diagonal : {false, true})
    rows.push_back({.name = "packed sequences",
                    .tokens = 41,
                    .keys = 61,
                    .heads = 6,
                    .kv_heads = 2,
                    .options = {.block_size = 16, .diagonal = diagonal, .window = 4, .tiles = {3, 16}},
                    .counts = diagonal,
                    .packed = true});
  for (bool repeats : {false, true}) {
    rows.push_back({.name = "many tokens of a tile",
                    .tokens = 70,
                    .keys = 70,
                    .heads = 1,
                    .options = {.block_size = 16, .repeats = repeats}});
    rows.push_back(
        {.name = "many blocks", .tokens = 3, .keys = 1100, .options = {.block_size = 1, .repeats = repeats}});
  }
  rows.push_back({.name = "no entries", .entries = 0, .options = {.block_size = 16}});
  rows.push_back({.name = "no sequences", .batch = 0, .options = {.block_size = 16}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_blocks_and_groups(rows);
  add_other_rows(rows);
  return in_both_layouts(rows, 5);
}

using Given = SelectedArguments;

PlannedCall<NsaSelected> planned_call(const Given& in) {
  return {nsa_selected_attention_schema(),
          NsaSelected{in.options, in.q.inside, in.k.inside, in.v.inside, in.indices.inside}};
}

// With the window, as the operator has it.
NsaSelectedResult results_of(const PlannedCall<NsaSelected>& planned) {
  NsaSelectedResult result{planned.bound.output("out"), planned.bound.output("lse"), {}, {}};
  if (!planned.bound.has("window_out")) return result;
  const NsaSelectedResult all =
      nsa_selected_attention(planned.op.q, planned.op.k, planned.op.v, planned.op.block_indices, [&] {
        NsaSelectedOptions options = planned.op;
        options.out.reset(), options.lse.reset();
        return options;
      }());
  result.window_out = all.window_out, result.window_lse = all.window_lse;
  return result;
}

class NsaRows : public testing::TestWithParam<Row> {};

using Call = std::function<NsaSelectedResult(const Given& in)>;

void expect_formula(const Row& row, Target target, const Call& call) {
  SCOPED_TRACE(row.name + " " + std::to_string(row.tokens) + " x " + std::to_string(row.keys) +
               " blocks of " + std::to_string(row.options.block_size) + " " + std::string(target.name()));
  Given in(row);
  const Shape out_shape = shape_of(row, row.tokens, row.heads, row.dim_v);
  const Planted out(out_shape, row.type), lse(vector_shape(row), f32);
  in.options.out = out.inside, in.options.lse = lse.inside, in.options.target = target;
  const NsaSelectedResult result = call(in);
  auto by_formula = [&](DType steps) {
    return reference::nsa_selected_attention(in.q.inside, in.k.inside, in.v.inside, in.indices.inside,
                                             in.options, steps);
  };
  const NsaSelectedResult exact = by_formula(f64), plain = by_formula(row.type);
  expect_close("out", out.inside, exact.out, plain.out, row.type);
  expect_close("lse", lse.inside, exact.lse, plain.lse, f32);
  expect_close("window_out", result.window_out, exact.window_out, plain.window_out, row.type);
  expect_close("window_lse", result.window_lse, exact.window_lse, plain.window_lse, f32);
  EXPECT_TRUE(out.is_clean_outside() && lse.is_clean_outside());
}

TEST_P(NsaRows, AgreeWithTheFormula) {
  for (Target target : test_targets())
    expect_formula(GetParam(), target, [](const Given& in) {
      return nsa_selected_attention(in.q.inside, in.k.inside, in.v.inside, in.indices.inside, in.options);
    });
}

// The program for GPUs means the same everywhere.
TEST_P(NsaRows, AgreeWithTheFormulaAsPlannedForGpus) {
  for (Target target : test_targets())
    expect_formula(GetParam(), target, [](const Given& in) {
      PlannedCall planned = planned_call(in);
      if (!planned.bound.is_empty()) attend_nsa(nsa_call(planned.bound, planned.op, true), planned.launch);
      return results_of(planned);
    });
}

// Blocks that few tokens of a tile share are left to a pass over keys; in one call and in several.
TEST_P(NsaRows, AgreeWithTheFormulaDivided) {
  const Row& row = GetParam();
  Given in(row);
  const PlannedCall tried = planned_call(in);
  if (!can_divide(nsa_call(tried.bound, tried.op, true))) return;
  for (Target target : test_targets())
    for (const auto& [fewest, tokens_of_call] : {std::pair(2, 1024), std::pair(3, 16), std::pair(1000, 1024)})
      expect_formula(row, target, [&, fewest = fewest, tokens = tokens_of_call](const Given& given) {
        PlannedCall planned = planned_call(given);
        NsaCall own = nsa_call(planned.bound, planned.op, true);
        own.kernel.fewest = fewest, own.kernel.least_gain = fewest == 3 ? 1 : 0;
        if (!planned.bound.is_empty()) attend_nsa(own, planned.launch, tokens);
        return results_of(planned);
      });
}

INSTANTIATE_TEST_SUITE_P(Table, NsaRows, testing::ValuesIn(table()));

// With all past blocks selected it is causal attention.
TEST(Nsa, SelectingEverythingIsAttention) {
  const Tensor q = Tensor::random_normal({1, 50, 4, 16}, f32, 1),
               k = Tensor::random_normal({1, 50, 2, 16}, f32, 2);
  const Tensor all_blocks = Tensor::from<std::int32_t>({3, 1, 0, 2}, {1, 1, 1, 4});
  const NsaSelectedResult selected = nsa_selected_attention(
      q, k, k, Tensor::adopt(all_blocks.ref().expand({1, 50, 2, 4}), all_blocks.owner()), {.block_size = 16});
  const AttentionResult dense = attention(q, k, k, {.causal = true});
  EXPECT_TRUE(all_close(selected.out, dense.out, 1e-5, 1e-5));
  EXPECT_TRUE(all_close(selected.lse, dense.lse, 1e-5, 1e-5));
}

// Tokens between others select nothing, as many as are sorted together.
TEST(Nsa, SortsNothingWhereNothingIsLeft) {
  const std::int64_t tokens = 2 * chunk_tokens + 8;
  const Tensor q = Tensor::random_normal({1, tokens, 2, 16}, f32, 1),
               k = Tensor::random_normal({1, tokens, 1, 16}, f32, 2);
  const Tensor lists = Tensor::random_integers({1, tokens, 1, 3}, i32, 3, 0, tokens / 64 + 1);
  copy_elements(Tensor::full({1, chunk_tokens, 1, 3}, i32, -1),
                lists.ref().slice(1, chunk_tokens, 2 * chunk_tokens));
  NsaSelectedOptions options{.block_size = 64};
  const NsaSelectedResult exact = reference::nsa_selected_attention(q, k, k, lists, options);
  for (Target target : test_targets())
    for (const bool some : {true, false}) {
      options.target = target;
      PlannedCall planned(nsa_selected_attention_schema(), NsaSelected{options, q, k, k, lists});
      NsaCall call = nsa_call(planned.bound, planned.op, true);
      call.kernel.fewest = 1000, call.kernel.least_gain = some ? 0 : 1000;
      attend_nsa(call, planned.launch);
      const NsaSelectedResult result = results_of(planned);
      EXPECT_TRUE(all_close(result.out, exact.out, 1e-4, 1e-4));
      EXPECT_TRUE(all_close(result.lse, exact.lse, 1e-4, 1e-4));
    }
}

// The first wrong entry by rows is named as the caller counts; entries that do not count may be anything.
TEST(Nsa, ChecksIndicesWhereAsked) {
  for (Target target : test_targets())
    for (Layout layout : {Layout::bshd, Layout::bhsd}) {
      const bool heads_first = layout == Layout::bhsd;
      auto shape = [&](std::int64_t tokens, std::int64_t heads, std::int64_t last) {
        return heads_first ? Shape{2, heads, tokens, last} : Shape{2, tokens, heads, last};
      };
      const Tensor q = Tensor::zeros(shape(70, 4, 16), f32), k = Tensor::zeros(shape(30, 2, 16), f32);
      const Tensor indices = Tensor::full(shape(70, 2, 3), i32, -1);
      const Tensor counts = Tensor::full(shape(70, 2, 1), i32, 3).select(3, 0);
      NsaSelectedOptions options{.layout = layout, .block_size = 16, .check_indices = true, .target = target};
      auto call = [&] { nsa_selected_attention(q, k, k, indices, options); };
      EXPECT_EQ(refusal(call), "not refused");
      auto set = [&](std::int64_t token, std::int64_t head, std::int64_t entry, double value) {
        heads_first ? indices.set({1, head, token, entry}, value)
                    : indices.set({1, token, head, entry}, value);
      };
      set(69, 0, 0, -2);
      set(66, 1, 2, 2);
      set(66, 1, 1, 1);
      expect_refusal(call,
                     "argument 'block_indices': expected -1 or a number below 2, that of the blocks of "
                     "keys, given 2 at " +
                         std::string(heads_first ? "[1, 1, 66, 2]" : "[1, 66, 1, 2]"));
      heads_first ? counts.set({1, 1, 66}, 2) : counts.set({1, 66, 1}, 2);
      options.block_counts = counts;
      expect_refusal(call, "given -2 at " + std::string(heads_first ? "[1, 0, 69, 0]" : "[1, 69, 0, 0]"));
    }
}

TEST(Nsa, ChecksIndicesOfPackedSequences) {
  const Tensor fences_q = Tensor::from<std::int32_t>({0, 7, 7, 40, 41}),
               fences_k = Tensor::from<std::int32_t>({0, 20, 25, 25, 61});
  const Tensor q = Tensor::zeros({41, 2, 16}, f32), k = Tensor::zeros({61, 1, 16}, f32);
  const Tensor indices = Tensor::full({41, 1, 2}, i32, -1);
  for (Target target : test_targets()) {
    const NsaSelectedOptions options{.block_size = 16,
                                     .cu_seqlens_q = fences_q,
                                     .cu_seqlens_k = fences_k,
                                     .check_indices = true,
                                     .target = target};
    indices.set({3, 0, 0}, 1);
    indices.set({40, 0, 1}, 2);
    auto call = [&] { nsa_selected_attention(q, k, k, indices, options); };
    EXPECT_EQ(refusal(call), "not refused");
    indices.set({9, 0, 1}, 0);
    expect_refusal(call, "a number below 0, that of the blocks of keys, given 0 at [9, 0, 1]");
    indices.set({9, 0, 1}, -1);
  }
}

TEST(Nsa, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 20, 4, 16}, f32), k = Tensor::zeros({1, 30, 2, 16}, f32);
  const Tensor indices = Tensor::zeros({1, 20, 2, 3}, i32), counts = Tensor::zeros({1, 20, 2}, i32);
  auto call = [&](const TensorRef& of_q, const TensorRef& lists, NsaSelectedOptions options = {}) {
    return [=] { nsa_selected_attention(of_q, k, k, lists, options); };
  };
  const std::string name = "nsa_selected_attention, argument ";
  expect_refusal(call(q.select(0, 0), indices), name + "'q': expected rank 4");
  expect_refusal(call(q.slice(3, 0, 8), indices),
                 name + "'k': expected [batch, keys, kv_heads, d] with d = 8, as q");
  expect_refusal(call(q, indices.to(f32)), name + "'block_indices': expected dtype i32");
  expect_refusal(call(q, indices.select(0, 0)), name + "'block_indices': expected rank 4");
  expect_refusal(
      call(q, indices.slice(1, 0, 19)),
      name + "'block_indices': expected [batch, queries, selecting, entries] with queries = 20, as q");
  expect_refusal(call(q, indices.slice(2, 0, 1)),
                 name + "'block_indices': expected 4 heads, as q, or 2, as k");
  expect_refusal(call(q, Tensor::zeros({1, 20, 2, 4097}, i32)), "expected at most 4096 entries of a row");
  expect_refusal(call(q, indices, {.block_size = 0}), name + "'block_size': expected a block size from 1");
  expect_refusal(call(q, indices, {.block_counts = indices}), name + "'block_counts': expected rank 3");
  expect_refusal(call(q, indices, {.block_counts = counts.slice(1, 0, 3)}),
                 name + "'block_counts': expected [batch, queries, selecting] with queries = 20");
  expect_refusal(call(q, indices, {.window = -1}), name + "'window': expected a number of keys");
  expect_refusal(call(q, indices, {.scale = 0.f}), name + "'scale': expected a positive finite number");
  expect_refusal(call(q, indices, {.window_out = q}),
                 name + "'window_out': expected no tensor unless window > 0");
  expect_refusal(call(q.select(0, 0), indices, {.cu_seqlens_q = counts}), name + "'");
  expect_refusal(call(q, indices, {.max_seqlen_q = 4}), "cu_seqlens_q and cu_seqlens_k as well");
}

// The window is a call of its own: nothing is written before the other call's arguments are known to be
// right.
TEST(Nsa, RefusesBeforeItsWindowIsWritten) {
  const Tensor q = Tensor::zeros({1, 20, 4, 16}, f32), k = Tensor::zeros({1, 30, 2, 16}, f32);
  const Tensor indices = Tensor::zeros({1, 20, 2, 3}, i32), counts = Tensor::zeros({1, 20, 2}, i32);
  const Tensor window_out = Tensor::full({1, 20, 4, 16}, f32, 7), lse = Tensor::zeros({1, 4, 20}, f32);
  auto elsewhere = [](TensorRef tensor) {
    tensor.device = Device::cuda();
    return tensor;
  };
  auto call = [&](const TensorRef& lists, NsaSelectedOptions options) {
    options.window = 5, options.window_out = window_out.ref(), options.target = Target::cpu();
    return [=] { nsa_selected_attention(q, k, k, lists, options); };
  };
  const std::string name = "nsa_selected_attention, argument ";
  expect_refusal(call(elsewhere(indices.ref()), {}),
                 name + "'block_indices': expected a tensor on cpu, as q");
  expect_refusal(call(indices, {.block_counts = elsewhere(counts.ref())}),
                 name + "'block_counts': expected a tensor on cpu, as q");
  expect_refusal(call(indices, {.out = elsewhere(q.ref())}), name + "'out': expected a tensor on cpu");
  expect_refusal(call(indices, {.out = q.ref()}), name + "'out': expected its own memory, not that of q");
  const Tensor window_lse = lse.clone();
  expect_refusal(call(indices, {.lse = lse.ref(), .window_lse = elsewhere(window_lse.ref())}),
                 name + "'window_lse': expected a tensor on cpu");
  const std::string apart = "expected its own memory, not that of ";
  expect_refusal(call(indices, {.out = window_out.ref()}), name + "'out': " + apart + "window_out");
  expect_refusal(call(indices, {.lse = lse.ref(), .window_lse = lse.ref()}),
                 name + "'lse': " + apart + "window_lse");
  const TensorRef on_window(window_out.ref().data, f32, lse.shape());
  expect_refusal(call(indices, {.window_lse = on_window}), name + "'window_out': " + apart + "window_lse");
  const TensorRef on_indices(indices.ref().data, f32, lse.shape());
  expect_refusal(call(indices, {.lse = on_indices}), name + "'lse': " + apart + "block_indices");
  expect_refusal(call(indices, {.window_lse = on_indices}),
                 name + "'window_lse': " + apart + "block_indices");
  const TensorRef repeated = Tensor::zeros({1, 1, 1, 16}, f32).ref().expand({1, 20, 4, 16});
  expect_refusal(call(indices, {.out = repeated}), name + "'out': expected elements that share no memory");
  for (const float x : window_out.values<float>()) ASSERT_EQ(x, 7);
}

// Outputs may be windows of one tensor.
TEST(Nsa, WritesOutputsSideBySide) {
  const Tensor q = Tensor::random_normal({1, 20, 4, 16}, f32, 1),
               k = Tensor::random_normal({1, 30, 2, 16}, f32, 2);
  const Tensor indices = Tensor::random_integers({1, 20, 2, 3}, i32, 3, -1, 2);
  const Tensor outs = Tensor::zeros({1, 20, 8, 16}, f32), lses = Tensor::zeros({2, 4, 20}, f32);
  NsaSelectedOptions options{.block_size = 16, .window = 5};
  const NsaSelectedResult apart = nsa_selected_attention(q, k, k, indices, options);
  options.out = outs.slice(2, 0, 4), options.window_out = outs.slice(2, 4, 8);
  options.lse = lses.slice(0, 0, 1), options.window_lse = lses.slice(0, 1, 2);
  nsa_selected_attention(q, k, k, indices, options);
  EXPECT_TRUE(equal(outs.slice(2, 0, 4), apart.out) && equal(outs.slice(2, 4, 8), apart.window_out));
  EXPECT_TRUE(equal(lses.slice(0, 0, 1), apart.lse) && equal(lses.slice(0, 1, 2), apart.window_lse));
}

}  // namespace nsa_test
}  // namespace tegula::ops
