// What plans say of calls that no choice of theirs makes faster, and that they say nothing beside them.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/schema/example.hpp"
#include "ops/schema/launch.hpp"
#include "ops/schema/strided.hpp"

namespace tegula::ops {
namespace plan_notes_test {

struct Case {
  const char *name, *op, *call, *note;
  bool is_said;
  Target target = Target::cuda();
};

constexpr const char *gradients_of_rows = "that are written and read again", *rows = "of a listed row come",
                     *turns = "add to dq in turns", *few_rows = "these bytes take longer",
                     *listed_by_blocks = "blocks share the list of a query",
                     *heads = "heads of a group follow one another",
                     *steps = "and blocks take as long to begin and end", *filled = "fill",
                     *copied = "copied first, or written last", *groups = "threads bring groups of channels",
                     *covered = "cover images of 5 x 5",
                     *few_features = "brings its pixels again, for 64 features",
                     *cut_rows = "begin off 16 bytes", *scales = "scales of groups",
                     *twice = "are read twice", *few_clusters = "are few for clusters that stay";

const Case cases[] = {
    {"rows_of_one_head", "sparse_mla",
     "queries=2048 keys=8192 kv_heads=1 group=1 d=576 d_v=512 bf16 entries=1024", rows, true},
    {"rows_of_32_heads", "sparse_mla",
     "queries=2048 keys=8192 kv_heads=1 group=32 d=576 d_v=512 bf16 entries=1000", rows, true},
    {"rows_of_64_heads", "sparse_mla",
     "queries=2048 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=1000", rows, false},
    {"pairs_of_16_heads", "sparse_mla_backward",
     "queries=2048 keys=8192 kv_heads=1 group=16 d=576 d_v=512 bf16 entries=512", gradients_of_rows, true},
    {"pairs_of_32_heads", "sparse_mla_backward",
     "queries=2048 keys=8192 kv_heads=1 group=32 d=576 d_v=512 bf16 entries=512", gradients_of_rows, false},
    {"turns_of_1023_tokens", "attention_backward",
     "batch=4 queries=1023 keys=1023 kv_heads=4 group=7 d=128 d_v=128 bf16 causal", turns, true},
    {"any_order_of_1023_tokens", "attention_backward",
     "batch=4 queries=1023 keys=1023 kv_heads=4 group=7 d=128 d_v=128 bf16 causal deterministic=false", turns,
     false},
    {"turns_of_4096_tokens", "attention_backward",
     "batch=4 queries=4096 keys=4096 kv_heads=4 group=7 d=128 d_v=128 bf16 causal", turns, false},
    {"steps_of_333_queries", "attention_backward",
     "batch=1 queries=333 keys=4097 kv_heads=2 group=4 d=128 d_v=128 bf16", steps, true},
    {"steps_of_1000_queries", "attention_backward",
     "batch=1 queries=1000 keys=4097 kv_heads=2 group=4 d=128 d_v=128 bf16", steps, false},
    {"wide_tiles_of_few_queries", "attention_backward",
     "batch=1 queries=300 keys=5096 kv_heads=4 group=1 d=160 d_v=160 bf16 causal", filled, true},
    {"wide_tiles_of_1000_queries", "attention_backward",
     "batch=1 queries=1000 keys=5096 kv_heads=8 group=1 d=160 d_v=160 bf16 causal", filled, true},
    {"wide_tiles_of_many_queries", "attention_backward",
     "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=160 d_v=160 bf16 causal", filled, false},
    {"few_queries_of_a_group_of_12", "attention_backward",
     "batch=8 queries=16 keys=8192 kv_heads=2 group=12 d=128 d_v=128 bf16", heads, true},
    {"few_queries_of_a_group_of_8", "attention_backward",
     "batch=8 queries=16 keys=8192 kv_heads=2 group=8 d=128 d_v=128 bf16", heads, false},
    {"many_queries_of_a_group_of_16", "attention_backward",
     "batch=8 queries=512 keys=8192 kv_heads=2 group=16 d=128 d_v=128 bf16", heads, false},
    {"blocks_of_16_rows", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=256 blocks_n=32 blocks_k=64 bf16 block_m=16", few_rows, true},
    {"blocks_of_16_columns", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=22 blocks_n=256 blocks_k=64 bf16 block_m=192 block_n=16", few_rows, true},
    {"lists_of_64_queries", "sparse_mla",
     "queries=64 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=2048", listed_by_blocks, true},
    {"lists_of_512_queries", "sparse_mla",
     "queries=512 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=2048", listed_by_blocks, false},
    {"odd_columns_of_a_sparse_product", "gemm_24", "m=1000 n=4097 k=4096 bf16 transpose_b", copied, true},
    {"even_columns_of_a_sparse_product", "gemm_24", "m=1000 n=4096 k=4096 bf16 transpose_b", copied, false},
    {"blocks_of_48_rows", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=86 blocks_n=32 blocks_k=64 bf16 block_m=48", few_rows, false},
    {"grouped_gemm_weights_1025_1024", "grouped_gemm_weights", "groups=8 m=1024 k=1025 n=1024 bf16", copied,
     true},
    {"grouped_gemm_weights_1024_1025", "grouped_gemm_weights", "groups=8 m=1024 k=1024 n=1025 bf16", copied,
     true},
    {"grouped_gemm_weights_1024_1024", "grouped_gemm_weights", "groups=8 m=1024 k=1024 n=1024 bf16", copied,
     false},
    {"scaled_grouped_gemm_weights_1025_1024", "scaled_grouped_gemm_weights", "groups=8 m=1024 k=1025 n=1024",
     copied, true},
    {"scaled_grouped_gemm_weights_1024_1025", "scaled_grouped_gemm_weights", "groups=8 m=1024 k=1024 n=1025",
     copied, true},
    {"scaled_grouped_gemm_weights_1024_1024", "scaled_grouped_gemm_weights", "groups=8 m=1024 k=1024 n=1024",
     copied, false},
    {"quantised_grouped_gemm_1025_1024", "quantised_grouped_gemm",
     "groups=8 m=1024 k=1025 n=1024 blocks=1 block=0 offsets format=int8 b:i8", copied, true},
    {"quantised_grouped_gemm_1024_1025", "quantised_grouped_gemm",
     "groups=8 m=1024 k=1024 n=1025 blocks=1 block=0 offsets format=int8 b:i8", copied, true},
    {"quantised_grouped_gemm_1024_1024", "quantised_grouped_gemm",
     "groups=8 m=1024 k=1024 n=1024 blocks=1 block=0 offsets format=int8 b:i8", copied, false},
    {"groups_of_9_of_270", "conv2d",
     "batch=64 height=16 width=16 channels=270 features=270 taps_h=3 taps_w=3 groups=30 bf16", groups, true},
    {"groups_of_9_of_288", "conv2d",
     "batch=64 height=16 width=16 channels=288 features=288 taps_h=3 taps_w=3 groups=32 bf16", groups, false},
    {"groups_of_64", "conv2d",
     "batch=64 height=16 width=16 channels=256 features=256 taps_h=3 taps_w=3 groups=4 bf16", groups, false},
    {"images_of_5", "conv2d", "batch=64 height=7 width=7 channels=64 features=128 taps_h=3 taps_w=3 bf16",
     covered, true},
    {"images_of_56", "conv2d", "batch=64 height=58 width=58 channels=64 features=128 taps_h=3 taps_w=3 bf16",
     covered, false},
    {"features_64", "conv2d", "batch=64 height=58 width=58 channels=64 features=64 taps_h=3 taps_w=3 bf16",
     few_features, true},
    {"features_128", "conv2d", "batch=64 height=58 width=58 channels=64 features=128 taps_h=3 taps_w=3 bf16",
     few_features, false},
    {"cut_rows_of_softmax", "softmax_backward", "...=4095 d=16385 bf16", cut_rows, true},
    {"cut_rows_of_f32", "softmax_backward", "...=4096 d=4095", cut_rows, true},
    {"whole_rows_of_softmax", "softmax_backward", "...=4096 d=16384 bf16", cut_rows, false},
    {"cut_rows_forward", "layer_norm", "...=1335 d=50257 bf16 weight bias", cut_rows, true},
    {"cut_rows_of_losses", "cross_entropy_and_gradient", "...=1335 classes=50257 bf16", cut_rows, true},
    {"whole_rows_forward", "layer_norm", "...=1335 d=50256 bf16 weight bias", cut_rows, false},
    {"few_rows_of_clusters", "layer_norm_backward", "...=16 d=131072 bf16 weight bias", few_clusters, true},
    {"many_rows_of_clusters", "layer_norm_backward", "...=512 d=131072 bf16 weight bias", few_clusters,
     false},
    {"cut_rows_of_norms", "layer_norm_backward", "...=4095 d=16385 bf16 weight bias", cut_rows, true},
    {"whole_rows_of_norms", "layer_norm_backward", "...=4096 d=16384 bf16 weight bias", cut_rows, false},
    {"few_features_of_norms", "layer_norm_backward", "...=4096 d=129 bf16 weight bias", cut_rows, false},
    {"sums_of_rows_and_features", "add_rms_norm_backward", "...=523 d=128256 bf16 weight", twice, true},
    {"rows_of_staying_clusters", "rms_norm_backward", "...=523 d=128256 bf16 weight", twice, false},
    {"scales_of_4097_columns", "quantised_gemm", "...=16 k=4096 n=4097 groups=32 f16 packed", scales, true},
    {"scales_of_4096_columns", "quantised_gemm", "...=16 k=4096 n=4096 groups=32 f16 packed", scales, false},
    {"blocks_of_16_columns_on_a_cpu", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=64 blocks_n=256 blocks_k=64 bf16 block_m=64 block_n=16",
     "reads 64 rows of a and 16 columns of b", true, Target::cpu()},
    {"copies_for_24_rows_on_a_cpu", "gemm", "m=24 n=512 k=16384 bf16 transpose_b", "copies take longer", true,
     Target::cpu()},
    {"copies_for_200_rows_on_a_cpu", "gemm", "m=200 n=512 k=16384 bf16 transpose_b", "copies take longer",
     false, Target::cpu()},
    {"sparse_rows_of_few_columns_on_a_cpu", "gemm_24", "m=64 n=16 k=4096 bf16 transpose_b", "expands", true,
     Target::cpu()},
    {"sparse_rows_of_many_columns_on_a_cpu", "gemm_24", "m=64 n=65536 k=4096 bf16 transpose_b", "expands",
     false, Target::cpu()},
    {"decoded_for_8_rows_on_a_cpu", "quantised_gemm",
     "...=8 k=4096 n=8192 groups=256 f16 format=nvfp4 scales:e4m3 packed", "takes longer than its products",
     true, Target::cpu()},
    {"rows_times_weights_on_a_cpu", "quantised_gemm",
     "...=4 k=4096 n=8192 groups=128 f16 format=mxfp4 scales:u8 packed", "takes longer than its products",
     false, Target::cpu()},
    {"decoded_for_48_rows_on_a_cpu", "quantised_gemm",
     "...=48 k=4096 n=8192 groups=128 f16 format=mxfp4 scales:u8 packed", "takes longer than its products",
     false, Target::cpu()},
    {"long_rows_of_gradients_on_a_cpu", "rms_norm_backward", "...=1023 d=65537 bf16 weight", twice, true,
     Target::cpu()},
    {"rows_of_gradients_on_a_cpu", "rms_norm_backward", "...=8192 d=8192 bf16 weight", twice, false,
     Target::cpu()},
    {"blocks_of_long_rows_on_a_cpu", "cast_fp8", "m=2047 n=32769 scaling=block bf16", "which are 65538 bytes",
     true, Target::cpu()},
    {"blocks_of_short_rows_on_a_cpu", "cast_fp8", "m=8191 n=1024 scaling=block bf16", "bytes apart", false,
     Target::cpu()},
    {"blocks_of_48_columns_on_a_cpu", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=64 blocks_n=86 blocks_k=64 bf16 block_m=64 block_n=48", "reads", false,
     Target::cpu()},
};

TEST(PlanNotes, AreThoseOfTheCall) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const OperatorSchema& schema = find_schema(c.op);
    const ExampleCall call = ExampleCall::parse(schema, c.call);
    const ListedCall listed = listed_by_name(schema, call.described(schema), call.options, c.target);
    const bool said = std::ranges::any_of(
        listed.notes, [&](const std::string& note) { return note.find(c.note) != std::string::npos; });
    EXPECT_EQ(said, c.is_said);
    for (const std::string& note : listed.notes) EXPECT_TRUE(note.starts_with("plan: ")) << note;
  }
}

}  // namespace plan_notes_test
}  // namespace tegula::ops
