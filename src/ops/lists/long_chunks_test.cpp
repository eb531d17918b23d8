// Lists transposed round and sorted pairs of long calls: chunks of many rows, which keep their tables of
// counts from growing with the square of a length.
#include <gtest/gtest.h>

#include "ops/block_sparse/backward_call.hpp"
#include "ops/nsa/backward.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/gradients.hpp"

namespace tegula::ops {
namespace long_chunks_test {

std::vector<Target> all_targets(bool emulated = true) {
  std::vector<Target> targets = test_targets();
  if (emulated) targets.push_back(Target::emulated_sm90());
  return targets;
}

// Rows that end inside a chunk and inside a step of it, or with one chunk; lists that fold, or several passes
// over them.
struct BlocksRow {
  std::string name;
  std::int64_t queries, keys;
  int q_block, k_block, chunk;
  bool emulated, causal = false, per_head = false, counts = false;
};

void PrintTo(const BlocksRow& row, std::ostream* out) { *out << row.name; }

class LongChunksOfBlocks : public testing::TestWithParam<BlocksRow> {};

TEST_P(LongChunksOfBlocks, AgreeWithTheFormula) {
  const BlocksRow& row = GetParam();
  const std::int64_t heads = 4, kv_heads = 2, choosing = row.per_head ? heads : kv_heads, entries = 3,
                     rows = (row.queries + row.q_block - 1) / row.q_block,
                     blocks = (row.keys + row.k_block - 1) / row.k_block;
  const Tensor q = Tensor::random_normal({1, row.queries, heads, 16}, f32, 1),
               k = Tensor::random_normal({1, row.keys, kv_heads, 16}, f32, 2),
               dout = Tensor::random_normal(q.shape(), f32, 3),
               indices = Tensor::random_integers({1, choosing, rows, entries}, i32, 4, -1, blocks),
               counts = Tensor::random_integers({1, choosing, rows}, i32, 5, 0, entries + 1);
  BlockSparseOptions options{
      .q_block_size = row.q_block, .k_block_size = row.k_block, .indices = indices, .causal = row.causal};
  if (row.counts) options.counts = counts;
  const AttentionResult forward = reference::block_sparse_attention(q, k, k, options);
  const Tensor out = forward.out.to(f32), lse = forward.lse.to(f32);
  auto by_formula = [&](DType steps) {
    return reference::block_sparse_attention_backward(dout, q, k, k, options, std::nullopt, steps);
  };
  const AttentionGradients exact = by_formula(f64), plain = by_formula(f32);
  for (const Target& target : all_targets(row.emulated)) {
    SCOPED_TRACE(target.name());
    options.target = target;
    PlannedCall planned(block_sparse_attention_backward_schema(),
                        BlockSparseBackward{options, {}, dout, q, k, k, out, lse});
    BlockSparseBackwardCall call =
        block_sparse_backward_call(Bound<BlockSparseBackward>(planned.bound), planned.bound.on_gpu());
    ASSERT_EQ(call.kernel.chunk, inverse_rows);
    call.kernel.chunk = row.chunk;
    run_block_sparse_backward(call, planned.launch);
    expect_gradients(gradients_of(planned.bound), exact, plain, f32);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, LongChunksOfBlocks,
    testing::Values(BlocksRow{"folded", 150, 170, 1, 1, 64, true},
                    BlocksRow{"folded causal", 150, 170, 1, 2, 128, false, true},
                    BlocksRow{"several passes", 70, 4200, 1, 16, 64, false},
                    BlocksRow{"steps that do not exist", 140, 90, 2, 16, 128, true, false, true},
                    BlocksRow{"one chunk", 130, 64, 1, 16, 256, false, true, false, true},
                    BlocksRow{"a chunk of one step", 33, 64, 1, 16, 128, false}));

struct TokensRow {
  std::string name;
  std::int64_t tokens, keys, kv_heads, entries;
  int block, chunk;
  bool emulated, packed = false, diagonal = false, repeats = false, dsel_scale = false;
};

void PrintTo(const TokensRow& row, std::ostream* out) { *out << row.name; }

struct Selected {
  Tensor q, k, lists, dout, fences_q, fences_k;
  NsaSelectedOptions options;

  Selected(const TokensRow& row, DType type, std::int64_t heads) {
    auto shape = [&](std::int64_t tokens, std::int64_t own_heads, std::int64_t last) {
      return row.packed ? Shape{tokens, own_heads, last} : Shape{1, tokens, own_heads, last};
    };
    const std::int64_t blocks = (row.keys + row.block - 1) / row.block;
    const auto q_end = static_cast<std::int32_t>(row.tokens), k_end = static_cast<std::int32_t>(row.keys);
    q = Tensor::random_normal(shape(row.tokens, heads, 16), type, 1);
    k = Tensor::random_normal(shape(row.keys, row.kv_heads, 16), type, 2);
    lists = Tensor::random_integers(shape(row.tokens, row.kv_heads, row.entries), i32, 3, -1, blocks);
    dout = Tensor::random_normal(q.shape(), type, 4);
    fences_q = Tensor::from<std::int32_t>({0, 7, 7, q_end - 1, q_end});
    fences_k = Tensor::from<std::int32_t>({0, 20, 30, k_end - 9, k_end});
    options.block_size = row.block, options.diagonal = row.diagonal, options.repeats = row.repeats;
    if (row.packed) options.cu_seqlens_q = fences_q, options.cu_seqlens_k = fences_k;
  }
};

class LongChunksOfTokens : public testing::TestWithParam<TokensRow> {};

// In two passes, whose lists are transposed round.
TEST_P(LongChunksOfTokens, AgreeWithTheFormulaInTwoPasses) {
  const TokensRow& row = GetParam();
  Selected in(row, f32, 4);
  NsaSelectedBackwardOptions more;
  more.sel_scale_gradient = row.dsel_scale;
  const NsaSelectedResult forward = reference::nsa_selected_attention(in.q, in.k, in.k, in.lists, in.options);
  const Tensor out = forward.out.to(f32), lse = forward.lse.to(f32);
  auto by_formula = [&](DType steps) {
    return reference::nsa_selected_attention_backward(in.dout, in.q, in.k, in.k, in.lists, in.options, more,
                                                      steps);
  };
  const NsaSelectedGradients exact = by_formula(f64), plain = by_formula(f32);
  for (const Target& target : all_targets(row.emulated)) {
    SCOPED_TRACE(target.name());
    in.options.target = target;
    PlannedCall planned(nsa_selected_attention_backward_schema(),
                        NsaSelectedBackward{in.options, more, in.dout, in.q, in.k, in.k, in.lists, out, lse});
    NsaBackwardCall call = nsa_backward_call(Bound<NsaSelectedBackward>(planned.bound));
    ASSERT_EQ(call.kernel.chunk, inverse_rows);
    call.kernel.chunk = row.chunk;
    run_two_passes(call, planned.launch);
    expect_gradients(gradients_of(planned.bound), exact, plain, f32);
    if (row.dsel_scale)
      expect_close("dsel_scale", planned.bound.output("dsel_scale"), exact.dsel_scale, plain.dsel_scale, f32);
  }
}

// By partials, whose pairs are sorted; in one call and in several.
TEST_P(LongChunksOfTokens, AgreeWithTheFormulaInOnePass) {
  const TokensRow& row = GetParam();
  Selected in(row, f32, 4);
  const NsaSelectedResult forward = reference::nsa_selected_attention(in.q, in.k, in.k, in.lists, in.options);
  const Tensor out = forward.out.to(f32), lse = forward.lse.to(f32);
  auto by_formula = [&](DType steps) {
    return reference::nsa_selected_attention_backward(in.dout, in.q, in.k, in.k, in.lists, in.options, {},
                                                      steps);
  };
  const NsaSelectedGradients exact = by_formula(f64), plain = by_formula(f32);
  for (const Target& target : all_targets(row.emulated)) {
    SCOPED_TRACE(target.name());
    in.options.target = target;
    PlannedCall planned(nsa_selected_attention_backward_schema(),
                        NsaSelectedBackward{in.options, {}, in.dout, in.q, in.k, in.k, in.lists, out, lse});
    const NsaBackwardCall call = nsa_backward_call(Bound<NsaSelectedBackward>(planned.bound));
    ASSERT_TRUE(can_take_one_pass(call));
    NsaOnePassKernel kernel = one_pass_kernel(call);
    ASSERT_EQ(kernel.forward.chunk, chunk_tokens);
    kernel.forward.chunk = row.chunk;
    for (const std::int64_t tokens_of_call : {std::int64_t{90}, row.tokens}) {
      run_one_pass(call, kernel, tokens_of_call, planned.launch);
      expect_gradients(gradients_of(planned.bound), exact, plain, f32);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, LongChunksOfTokens,
    testing::Values(TokensRow{"one head", 150, 150, 1, 3, 16, 64, true},
                    TokensRow{"two heads", 130, 170, 2, 4, 8, 128, false, false, true},
                    TokensRow{"packed", 141, 161, 2, 3, 16, 64, true, true},
                    TokensRow{"packed, all in one", 141, 161, 1, 3, 16, 256, false, true, true},
                    TokensRow{"repeats", 100, 100, 1, 5, 16, 64, false, false, false, true},
                    TokensRow{"scale", 100, 130, 1, 2, 16, 64, false, false, false, false, true}));

// Blocks that few tokens share are left to a pass over keys, whose pairs are sorted.
TEST(LongChunks, AgreeWithTheFormulaDivided) {
  const std::int64_t tokens = 2 * chunk_tokens + 70;
  const Tensor q = Tensor::random_normal({1, tokens, 4, 16}, bf16, 1),
               k = Tensor::random_normal({1, 500, 1, 16}, bf16, 2),
               lists = Tensor::random_integers({1, tokens, 1, 4}, i32, 3, -1, 8);
  NsaSelectedOptions options{.block_size = 64};
  const NsaSelectedResult exact = reference::nsa_selected_attention(q, k, k, lists, options);
  for (const Target& target : all_targets())
    for (const std::int64_t tokens_of_call : {std::int64_t{chunk_tokens}, tokens}) {
      options.target = target;
      PlannedCall planned(nsa_selected_attention_schema(), NsaSelected{options, q, k, k, lists});
      NsaCall call = nsa_call(planned.bound, planned.op, true);
      ASSERT_TRUE(can_divide(call));
      call.kernel.fewest = 5, call.kernel.least_gain = 0, call.kernel.chunk = 2 * chunk_tokens;
      attend_nsa(call, planned.launch, tokens_of_call);
      EXPECT_TRUE(all_close(planned.bound.output("out"), exact.out, 2e-2, 2e-2)) << target.name();
      EXPECT_TRUE(all_close(planned.bound.output("lse"), exact.lse, 1e-3, 1e-3)) << target.name();
    }
}

}  // namespace
}  // namespace tegula::ops
