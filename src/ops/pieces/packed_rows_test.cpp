// What plans of CPUs say of calls that no choice of theirs makes faster, and that they say nothing beside
// them.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/schema/example.hpp"
#include "ops/schema/launch.hpp"
#include "ops/schema/tile_registers.hpp"

namespace tegula::ops {
namespace packed_rows_test {

struct Case {
  const char *op, *call, *note;
  bool is_said;
};

constexpr const char *few_rows = "share the keys of a step", *parts = "more scores than",
                     *widened = "widened", *scores = "the exponentials and maxima of scores",
                     *converted = "converting a number of b", *gathered = "are looked for one by one",
                     *zeros = "with zeros for those";

const Case cases[] = {
    {"attention", "batch=1 queries=7 keys=4097 kv_heads=8 group=1 d=128 d_v=128 bf16", few_rows, true},
    {"attention", "batch=1 queries=100 keys=4097 kv_heads=8 group=1 d=128 d_v=128 bf16", few_rows, false},
    {"attention", "batch=2 queries=129 keys=129 kv_heads=2 group=4 d=128 d_v=128 bf16", parts, true},
    {"attention", "batch=2 queries=1024 keys=1024 kv_heads=2 group=4 d=128 d_v=128 bf16 causal", parts,
     false},
    {"attention", "batch=2 queries=1024 keys=1024 kv_heads=2 group=4 d=64 d_v=64 bf16", scores, true},
    {"attention", "batch=2 queries=1024 keys=1024 kv_heads=2 group=4 d=128 d_v=128 bf16", scores, false},
    {"attention_with_kv_cache", "batch=16 queries=1 keys=8192 kv_heads=2 group=8 d=128 d_v=128 bf16",
     few_rows, true},
    {"attention_with_kv_cache", "batch=16 queries=4 keys=8192 kv_heads=2 group=8 d=128 d_v=128 f32", few_rows,
     false},
    {"attention_with_kv_cache",
     "batch=16 queries=4 keys=8192 kv_heads=2 group=8 d=128 d_v=128 bf16 k_cache:e4m3 v_cache:e4m3", widened,
     true},
    {"attention_with_kv_cache", "batch=16 queries=4 keys=8192 kv_heads=2 group=8 d=128 d_v=128 bf16", widened,
     false},
    {"mla_decode", "batch=32 queries=1 keys=4096 heads=8 d=576 row=576 bf16", few_rows, true},
    {"mla_decode", "batch=32 queries=1 keys=4096 heads=64 d=576 row=576 bf16", few_rows, false},
    {"sparse_mla", "queries=2048 keys=8192 kv_heads=1 group=16 d=576 d_v=512 bf16 entries=1024", few_rows,
     true},
    {"sparse_mla", "queries=2048 keys=8192 kv_heads=1 group=16 d=576 d_v=512 f32 entries=1024", few_rows,
     false},
    {"sparse_mla", "queries=2048 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=1024", few_rows,
     false},
    {"nsa_decode",
     "batch=8 queries=4 keys=8192 entries=511 kv_heads=16 group=4 d=128 d_v=128 bf16 branches=3", few_rows,
     true},
    {"nsa_decode",
     "batch=8 queries=1 keys=8192 entries=511 kv_heads=1 group=64 d=128 d_v=128 bf16 branches=3", few_rows,
     false},
    {"nsa_selected_attention",
     "batch=1 queries=4096 keys=4096 kv_heads=8 selecting=8 group=2 d=128 d_v=128 bf16 entries=16 "
     "block_size=64",
     few_rows, true},
    {"nsa_selected_attention",
     "batch=1 queries=4096 keys=4096 kv_heads=1 selecting=1 group=64 d=128 d_v=128 bf16 entries=16 "
     "block_size=64",
     few_rows, false},
    {"block_sparse_attention",
     "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 indices entries=16 "
     "q_block_size=1 k_block_size=64",
     few_rows, true},
    {"block_sparse_attention",
     "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 indices entries=16 "
     "q_block_size=16 k_block_size=64",
     few_rows, false},
    {"block_sparse_attention_backward",
     "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 indices entries=16 "
     "q_block_size=1 k_block_size=64",
     few_rows, true},
    {"scaled_gemm", "m=128 n=14336 k=4096 blocks=32", converted, true},
    {"scaled_gemm", "m=192 n=14336 k=4096 blocks=32", converted, false},
    {"conv2d",
     "batch=32 height=7 width=7 channels=128 features=128 taps_h=3 taps_w=3 padding=1 stride=2 bf16",
     gathered, true},
    {"conv2d",
     "batch=32 height=8 width=8 channels=128 features=128 taps_h=3 taps_w=3 padding=1 stride=2 bf16",
     gathered, false},
    {"conv2d", "batch=4 height=56 width=56 channels=16 features=100 taps_h=3 taps_w=3 padding=1 bf16", zeros,
     true},
    {"conv2d", "batch=4 height=56 width=56 channels=32 features=100 taps_h=3 taps_w=3 padding=1 bf16", zeros,
     false},
};

bool is_said(const Case& c, Target target) {
  const OperatorSchema& schema = find_schema(c.op);
  const ExampleCall call = ExampleCall::parse(schema, c.call);
  const ListedCall listed = listed_by_name(schema, call.described(schema), call.options, target);
  return std::ranges::any_of(listed.notes,
                             [&](const std::string& note) { return note.find(c.note) != std::string::npos; });
}

TEST(PackedRows, NotesOfCpusAreThoseOfTheCall) {
  const SupposedTileRegisters supposed(true);
  for (const Case& c : cases) EXPECT_EQ(is_said(c, Target::cpu()), c.is_said) << c.op << ' ' << c.call;
}

TEST(PackedRows, AreNoneOnGpus) {
  for (const Case& c : cases) {
    if (c.note == scores) continue;
    EXPECT_FALSE(is_said(c, Target::cuda())) << c.op << ' ' << c.call;
  }
}

}  // namespace packed_rows_test
}  // namespace tegula::ops
