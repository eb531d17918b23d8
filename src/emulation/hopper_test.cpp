// The text for Hopper GPUs, run thread by thread on the CPU: shapes whose blocks have a producer and
// consumers, against the references.
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/call.hpp"
#include "ops/reference/reference.hpp"
#include "ops/registry.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::emulation {
namespace hopper_test {

struct Input {
  const char* name;
  Shape shape;
  int entries = 0;                        // of i32: numbers of so many blocks, -1 included
  std::vector<std::int32_t> values = {};  // of i32
};
struct HopperCase {
  std::string name, op;
  std::vector<Input> inputs;
  ops::OptionTexts options;
  DType type = bf16;
};

std::vector<Input> qkv(std::int64_t queries, std::int64_t keys, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t dim) {
  return {{"q", {1, queries, heads, dim}}, {"k", {1, keys, kv_heads, dim}}, {"v", {1, keys, kv_heads, dim}}};
}
// Five sequences, one of them empty.
std::vector<Input> packed(std::int64_t heads, std::int64_t kv_heads, std::int64_t dim) {
  const std::vector<std::int32_t> begins{0, 200, 200, 330, 331, 600};
  return {{"q", {600, heads, dim}},
          {"k", {600, kv_heads, dim}},
          {"v", {600, kv_heads, dim}},
          {"cu_seqlens_q", {}, 0, begins},
          {"cu_seqlens_k", {}, 0, begins}};
}
std::vector<Input> selected(std::vector<Input> inputs, Input indices) {
  inputs.push_back(std::move(indices));
  return inputs;
}

const std::vector<HopperCase> hopper_cases{
    {"gemm", "gemm", {{"a", {300, 264}}, {"b", {264, 520}}}, {}},
    {"gemm_f16_transposed",
     "gemm",
     {{"a", {136, 260}}, {"b", {392, 136}}},
     {{"transpose_a", "true"}, {"transpose_b", "true"}},
     f16},
    {"gemm_8_bits",
     "gemm",
     {{"a", {300, 400}}, {"b", {200, 400}}},
     {{"transpose_b", "true"}, {"tile_m", "128"}, {"tile_n", "192"}, {"scale", "0.5"}},
     e4m3},
    {"gemm_8_bits_two_accumulators",
     "gemm",
     {{"a", {300, 272}}, {"b", {200, 272}}},
     {{"transpose_b", "true"}, {"tile_m", "256"}, {"tile_n", "128"}, {"out_dtype", "f32"}},
     e5m2},
    {"gemm_8_bits_off_16_bytes",
     "gemm",
     {{"a", {130, 77}}, {"b", {141, 77}}},
     {{"transpose_b", "true"}},
     e4m3},
    {"gemm_8_bits_across", "gemm", {{"a", {144, 130}}, {"b", {144, 200}}}, {{"transpose_a", "true"}}, e4m3},
    {"gemm_off_16_bytes", "gemm", {{"a", {130, 77}}, {"b", {77, 141}}}, {}},
    {"attention_128", "attention", qkv(300, 700, 2, 1, 128), {}},
    {"attention_128_causal", "attention", qkv(390, 520, 2, 2, 128), {{"causal", "true"}}},
    {"attention_128_window", "attention", qkv(400, 400, 1, 1, 128), {{"causal", "true"}, {"left", "150"}}},
    {"attention_128_f16", "attention", qkv(200, 390, 1, 1, 128), {{"softcap", "30"}}, f16},
    {"attention_three_groups",
     "attention",
     qkv(400, 700, 1, 1, 64),
     {{"tile_queries", "192"}, {"tile_keys", "128"}}},
    {"attention_three_groups_causal",
     "attention",
     qkv(420, 420, 2, 1, 64),
     {{"causal", "true"}, {"tile_queries", "192"}, {"tile_keys", "128"}}},
    {"attention_128_grouped", "attention", qkv(260, 300, 8, 2, 128), {{"causal", "true"}}},
    {"attention_packed", "attention", packed(2, 2, 128), {{"causal", "true"}}},
    {"attention_packed_grouped", "attention", packed(8, 2, 128), {{"causal", "true"}}},
    {"attention_128_splits", "attention", qkv(3, 900, 8, 1, 128), {{"splits", "3"}}},
    {"attention_packed_splits", "attention", packed(2, 2, 128), {{"causal", "true"}, {"splits", "2"}}},
    {"attention_256", "attention", qkv(150, 300, 1, 1, 256), {{"causal", "true"}}},
    {"attention_one_key", "attention", qkv(200, 1, 1, 1, 64), {}},
    {"attention_no_key", "attention", qkv(200, 0, 1, 1, 128), {}},
    {"backward_128_any_order", "attention_backward", qkv(200, 300, 2, 1, 128), {{"deterministic", "false"}}},
    {"backward_128_causal_in_order", "attention_backward", qkv(200, 200, 1, 1, 128), {{"causal", "true"}}},
    {"backward_128_odd_steps", "attention_backward", qkv(130, 300, 4, 2, 128), {}},
    {"backward_128_causal_odd_steps",
     "attention_backward",
     qkv(190, 260, 2, 1, 128),
     {{"causal", "true"}, {"deterministic", "false"}}},
    {"backward_64",
     "attention_backward",
     qkv(190, 260, 1, 1, 64),
     {{"causal", "true"}, {"deterministic", "false"}}},
    {"sparse_64",
     "block_sparse_attention",
     selected(qkv(256, 512, 8, 1, 128), {"indices", {1, 1, 4, 3}, 8}),
     {{"q_block_size", "64"}, {"k_block_size", "64"}}},
    {"sparse_128",
     "block_sparse_attention",
     selected(qkv(300, 512, 1, 1, 128), {"indices", {1, 1, 3, 2}, 4}),
     {{"q_block_size", "128"}, {"k_block_size", "128"}, {"causal", "true"}}},
    {"sparse_64_causal",
     "block_sparse_attention",
     selected(qkv(256, 512, 8, 1, 128), {"indices", {1, 1, 4, 3}, 8}),
     {{"q_block_size", "64"}, {"k_block_size", "64"}, {"causal", "true"}}},
    {"sparse_384_causal",
     "block_sparse_attention",
     selected(qkv(700, 700, 2, 1, 128), {"indices", {1, 1, 2, 3}, 2}),
     {{"q_block_size", "384"}, {"k_block_size", "384"}, {"causal", "true"}}},
    {"sparse_200_threads",
     "block_sparse_attention",
     selected(qkv(105, 571, 4, 1, 64), {"indices", {1, 1, 2, 5}, 5}),
     {{"q_block_size", "100"}, {"k_block_size", "128"}}},
    {"sparse_single_keys",
     "block_sparse_attention",
     selected(qkv(200, 300, 1, 1, 128), {"indices", {1, 1, 2, 70}, 300}),
     {{"q_block_size", "128"}, {"k_block_size", "1"}}},
    {"sparse_single_queries",
     "block_sparse_attention",
     selected(qkv(100, 512, 16, 2, 128), {"indices", {1, 2, 100, 3}, 8}),
     {{"q_block_size", "1"}, {"k_block_size", "64"}}},
    {"selected",
     "nsa_selected_attention",
     selected(qkv(200, 200, 16, 1, 128), {"block_indices", {1, 200, 1, 3}, 4}),
     {}},
    {"sparse_backward_64",
     "block_sparse_attention_backward",
     selected(qkv(150, 300, 2, 1, 128), {"indices", {1, 1, 3, 3}, 5}),
     {{"q_block_size", "64"}, {"k_block_size", "64"}, {"causal", "true"}}},
    {"sparse_backward_pieces",
     "block_sparse_attention_backward",
     selected(qkv(1100, 200, 2, 1, 64), {"indices", {1, 1, 18, 3}, 4}),
     {{"q_block_size", "64"}, {"k_block_size", "64"}}},
    {"sparse_backward_any_order",
     "block_sparse_attention_backward",
     selected(qkv(2100, 256, 1, 1, 64), {"indices", {1, 1, 33, 3}, 2}),
     {{"q_block_size", "64"}, {"k_block_size", "128"}, {"deterministic", "false"}}},
    {"sparse_backward_single_queries",
     "block_sparse_attention_backward",
     selected(qkv(70, 300, 8, 2, 64), {"indices", {1, 2, 70, 3}, 5}),
     {{"q_block_size", "1"}, {"k_block_size", "64"}}},
    {"sparse_packed_64",
     "block_sparse_attention",
     selected(packed(4, 2, 128), {"indices", {5, 4, 5, 3}, 5}),
     {{"q_block_size", "64"}, {"k_block_size", "64"}}},
    {"sparse_packed_128_causal",
     "block_sparse_attention",
     selected(packed(2, 1, 128), {"indices", {5, 1, 3, 2}, 3}),
     {{"q_block_size", "128"}, {"k_block_size", "128"}, {"causal", "true"}}},
    {"sparse_packed_single_keys",
     "block_sparse_attention",
     selected(packed(1, 1, 64), {"indices", {5, 1, 3, 70}, 269}),
     {{"q_block_size", "100"}, {"k_block_size", "1"}, {"causal", "true"}}},
    {"sparse_packed_single_queries",
     "block_sparse_attention",
     selected(packed(16, 2, 64), {"indices", {5, 2, 269, 3}, 5}),
     {{"q_block_size", "1"}, {"k_block_size", "64"}, {"causal", "true"}}},
    {"sparse_packed_single_queries_per_head",
     "block_sparse_attention",
     selected(packed(4, 2, 64), {"indices", {5, 4, 270, 3}, 5}),
     {{"q_block_size", "1"}, {"k_block_size", "64"}}},
    {"sparse_backward_packed_64",
     "block_sparse_attention_backward",
     selected(packed(2, 1, 128), {"indices", {5, 1, 5, 3}, 5}),
     {{"q_block_size", "64"}, {"k_block_size", "64"}, {"causal", "true"}}},
    {"sparse_backward_packed_any_order",
     "block_sparse_attention_backward",
     selected(packed(1, 1, 64), {"indices", {5, 1, 5, 20}, 3}),
     {{"q_block_size", "64"}, {"k_block_size", "128"}, {"deterministic", "false"}}},
    {"sparse_backward_packed_16",
     "block_sparse_attention_backward",
     selected(packed(4, 2, 64), {"indices", {5, 4, 17, 3}, 68}),
     {{"q_block_size", "16"}, {"k_block_size", "4"}}},
    {"sparse_backward_packed_single_queries",
     "block_sparse_attention_backward",
     selected(packed(8, 2, 64), {"indices", {5, 2, 269, 3}, 5}),
     {{"q_block_size", "1"}, {"k_block_size", "64"}, {"causal", "true"}}},
    {"backward_96_any_order", "attention_backward", qkv(100, 130, 1, 1, 96), {{"deterministic", "false"}}},
    {"selected_backward_one_head",
     "nsa_selected_attention_backward",
     selected(qkv(100, 150, 2, 2, 64), {"block_indices", {1, 100, 2, 2}, 3}),
     {}},
    {"selected_backward_window",
     "nsa_selected_attention_backward",
     selected(qkv(130, 130, 8, 2, 64), {"block_indices", {1, 130, 2, 3}, 3}),
     {{"window", "40"}}},
    {"selected_backward_scale",
     "nsa_selected_attention_backward",
     selected(qkv(90, 100, 4, 2, 64), {"block_indices", {1, 90, 2, 2}, 2}),
     {{"sel_scale_gradient", "true"}}},
    {"selected_backward_repeats",
     "nsa_selected_attention_backward",
     selected(qkv(130, 130, 8, 2, 64), {"block_indices", {1, 130, 2, 5}, 3}),
     {{"repeats", "true"}}},
    {"selected_backward_packed",
     "nsa_selected_attention_backward",
     selected(packed(8, 2, 64), {"block_indices", {600, 2, 3}, 5}),
     {}},
    {"selected_large_group_512",
     "nsa_selected_attention",
     selected(qkv(5, 90, 70, 1, 512), {"block_indices", {1, 5, 1, 2}, 2}),
     {}},
    {"selected_backward_large_group_256",
     "nsa_selected_attention_backward",
     selected(qkv(5, 90, 200, 1, 256), {"block_indices", {1, 5, 1, 2}, 2}),
     {{"window", "40"}, {"sel_scale_gradient", "true"}}},
    {"selected_backward_large_group_f32_128",
     "nsa_selected_attention_backward",
     selected(qkv(20, 70, 200, 1, 128), {"block_indices", {1, 20, 1, 2}, 2}),
     {},
     f32},
    {"selected_backward_per_head",
     "nsa_selected_attention_backward",
     selected(qkv(90, 100, 4, 2, 64), {"block_indices", {1, 90, 4, 2}, 2}),
     {{"block_size", "80"}}},
};

ops::Tensors inputs_of(const HopperCase& c) {
  ops::Tensors result;
  std::uint64_t seed = 11;
  for (const Input& input : c.inputs)
    result.emplace(input.name, !input.values.empty() ? Tensor::from(input.values)
                               : input.entries > 0
                                   ? Tensor::random_integers(input.shape, i32, ++seed, -1, input.entries)
                                   : Tensor::random_normal(input.shape, c.type, ++seed));
  const std::size_t backward = c.op.find("_backward");
  if (backward == std::string::npos) return result;
  const ops::Operator& forward = ops::find_operator(c.op.substr(0, backward));
  ops::OptionTexts options = c.options;
  for (const char* own : {"deterministic", "sel_scale_gradient"}) options.erase(own);
  const ops::Tensors out = forward.reference(result, ops::Options::parse(forward, options));
  result.emplace("out", out.at("out").to(c.type));
  result.emplace("lse", out.at("lse").to(f32));
  result.emplace("dout", Tensor::random_normal(c.inputs[0].shape, c.type, ++seed));
  if (!c.options.contains("window")) return result;
  result.emplace("window_out", out.at("window_out").to(c.type));
  result.emplace("window_lse", out.at("window_lse").to(f32));
  result.emplace("dwindow_out", Tensor::random_normal(c.inputs[0].shape, c.type, ++seed));
  return result;
}

class HopperText : public ::testing::TestWithParam<HopperCase> {};

TEST_P(HopperText, AgreesWithTheFormula) {
  const HopperCase& c = GetParam();
  const ops::Operator& op = ops::find_operator(c.op);
  const ops::Options options = ops::Options::parse(op, c.options);
  const ops::Tensors inputs = inputs_of(c);
  const ops::Tensors outputs = op.run(inputs, options, Target::emulated_sm90());
  EXPECT_EQ(faults_of(op.judge(inputs, options, outputs)), "");
}

INSTANTIATE_TEST_SUITE_P(Operators, HopperText, ::testing::ValuesIn(hopper_cases),
                         [](const auto& info) { return info.param.name; });

// Calls of practice are long; here their tiles leave blocks of few tokens to the pass over keys as well, in
// segments of which the last is short; where its tokens agree, nothing of it is left. Tiles of one warp
// group, and of three, of which with a least gain some groups leave blocks and others none.
struct Division {
  std::int64_t group = 0;
  int fewest = 0;
  bool agree = false;  // all tokens of the last chunk select the same blocks
  int tile = 0, least_gain = 0;
};
class DividedSelection : public ::testing::TestWithParam<Division> {};

TEST_P(DividedSelection, AgreesWithTheFormula) {
  const auto [group, fewest, agree, tile, least_gain] = GetParam();
  const std::int64_t tokens = ops::chunk_tokens + 70;
  const Tensor q = Tensor::random_normal({1, tokens, group, 64}, bf16, 1),
               k = Tensor::random_normal({1, 500, 1, 64}, bf16, 2),
               v = Tensor::random_normal({1, 500, 1, 64}, bf16, 3),
               lists = Tensor::random_integers({1, tokens, 1, 4}, i32, 4, -1, 8);
  for (std::int64_t token = ops::chunk_tokens; agree && token < tokens; ++token)
    copy_elements(Tensor::from<std::int32_t>({6, 0, 3, 1}, {1, 1, 1, 4}),
                  lists.ref().slice(1, token, token + 1));
  ops::NsaSelectedOptions options;
  options.target = Target::emulated_sm90(), options.tiles.queries = tile;
  ops::PlannedCall planned(ops::nsa_selected_attention_schema(), ops::NsaSelected{options, q, k, v, lists});
  ops::NsaCall call = ops::nsa_call(planned.bound, planned.op, true);
  ASSERT_TRUE(ops::can_divide(call));
  call.kernel.fewest = fewest, call.kernel.least_gain = least_gain;
  ops::attend_nsa(call, planned.launch, ops::chunk_tokens);
  const ops::NsaSelectedResult exact = ops::reference::nsa_selected_attention(q, k, v, lists, options);
  EXPECT_TRUE(all_close(planned.bound.output("out"), exact.out, 2e-2, 2e-2));
  EXPECT_TRUE(all_close(planned.bound.output("lse"), exact.lse, 1e-4, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Operators, DividedSelection,
                         ::testing::Values(Division{8, 3}, Division{4, 5}, Division{4, 5, true},
                                           Division{8, 3, false, 24}, Division{8, 3, false, 24, 1},
                                           Division{5, 4, false, 24}, Division{4, 9, true, 48},
                                           Division{4, 9, false, 48, 3}, Division{16, 2, false, 12}),
                         [](const auto& info) {
                           const Division& d = info.param;
                           return "group" + std::to_string(d.group) + "_fewest" + std::to_string(d.fewest) +
                                  (d.agree ? "_agreeing" : "") + "_tile" + std::to_string(d.tile) + "_gain" +
                                  std::to_string(d.least_gain);
                         });

// Three warp groups share their loads. Large scores move the maxima again and again, small ones once. With 16
// heads and many blocks, warps multiply alone.
TEST(HopperSelection, LeavesOutWhatNoTokenOfAWarpGroupSelected) {
  for (const auto& [group, repeats, scale, blocks] :
       {std::tuple(16, false, 2.0F, 8), std::tuple(16, true, 0.125F, 8), std::tuple(16, false, 2.0F, 20),
        std::tuple(16, true, 0.125F, 14), std::tuple(13, false, 0.001F, 20), std::tuple(5, false, 0.125F, 8),
        std::tuple(4, false, 0.001F, 8)}) {
    const std::int64_t tokens = 61, keys = 64 * blocks - 12;
    const Tensor q = Tensor::random_normal({1, tokens, group, 64}, bf16, 1),
                 k = Tensor::random_normal({1, keys, 1, 64}, bf16, 2),
                 v = Tensor::random_normal({1, keys, 1, 64}, bf16, 3),
                 lists = Tensor::random_integers({1, tokens, 1, 3}, i32, 4, -1, blocks);
    ops::NsaSelectedOptions options;
    options.repeats = repeats, options.scale = scale, options.target = Target::emulated_sm90();
    options.tiles.queries = group > 8 ? 12 : group > 4 ? 24 : 48;
    const ops::NsaSelectedResult result = ops::nsa_selected_attention(q, k, v, lists, options),
                                 exact = ops::reference::nsa_selected_attention(q, k, v, lists, options);
    EXPECT_TRUE(all_close(result.out, exact.out, 2e-2, 2e-2)) << group << repeats << blocks;
    EXPECT_TRUE(all_close(result.lse, exact.lse, 1e-3, 1e-3)) << group << repeats << blocks;
  }
}

TEST(HopperSelection, SharesLoadsWithinPackedSequences) {
  const std::int64_t tokens = 70, keys = 300;
  const Tensor q = Tensor::random_normal({tokens, 16, 64}, bf16, 1),
               k = Tensor::random_normal({keys, 1, 64}, bf16, 2),
               v = Tensor::random_normal({keys, 1, 64}, bf16, 3),
               lists = Tensor::random_integers({tokens, 1, 4}, i32, 4, -1, 5),
               counts = Tensor::random_integers({tokens, 1}, i32, 5, 0, 5),
               fences_q = Tensor::from<std::int32_t>({0, 29, 29, 70}),
               fences_k = Tensor::from<std::int32_t>({0, 130, 140, 300});
  for (const bool diagonal : {false, true}) {
    ops::NsaSelectedOptions options;
    options.block_counts = counts, options.diagonal = diagonal;
    options.cu_seqlens_q = fences_q, options.cu_seqlens_k = fences_k;
    options.tiles.queries = 12, options.target = Target::emulated_sm90();
    const ops::NsaSelectedResult result = ops::nsa_selected_attention(q, k, v, lists, options),
                                 exact = ops::reference::nsa_selected_attention(q, k, v, lists, options);
    EXPECT_TRUE(all_close(result.out, exact.out, 2e-2, 2e-2)) << diagonal;
    EXPECT_TRUE(all_close(result.lse, exact.lse, 1e-3, 1e-3)) << diagonal;
  }
}

}  // namespace hopper_test
}  // namespace tegula::emulation
