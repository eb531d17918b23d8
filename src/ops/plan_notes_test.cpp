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
                     *turns = "add to dq in turns", *few_rows = "reads 16 rows of a",
                     *steps = "and blocks take as long to begin and end", *filled = "fill";

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
    {"blocks_of_16_rows", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=256 blocks_n=32 blocks_k=64 bf16 block_m=16", few_rows, true},
    {"blocks_of_48_rows", "block_sparse_gemm",
     "m=4096 n=4096 k=4096 blocks_m=86 blocks_n=32 blocks_k=64 bf16 block_m=48", few_rows, false},
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
