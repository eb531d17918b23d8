#include "ops/block_sparse/table.hpp"

namespace tegula::ops {

namespace {

std::vector<Example> with_more(std::vector<Example> examples, const std::string& more) {
  for (Example& example : examples) example.text += " " + more;
  return examples;
}

}  // namespace

std::vector<Example> block_sparse_examples(const std::string& more) {
  static const std::vector<Example> all{
      {"small",
       "batch=1 queries=9 keys=11 kv_heads=1 group=2 d=8 d_v=4 choosers=1 entries=2 q_block_size=4 "
       "k_block_size=4 indices"},
      {"lists",
       "batch=1 queries=48 keys=64 kv_heads=2 group=1 d=16 d_v=16 f32 choosers=2 "
       "entries=2 q_block_size=16 k_block_size=16 indices"},
      {"odd_strides_bf16",
       "batch=1 queries=70 keys=90 kv_heads=2 group=2 d=64 d_v=32 bf16 choosers=2 entries=2 "
       "q_block_size=64 k_block_size=32 indices causal strides=odd"},
      {"packed_heads_causal",
       "batch=1 queries=30 keys=50 kv_heads=1 group=4 d=16 d_v=16 f32 choosers=1 "
       "entries=4 q_block_size=4 k_block_size=8 indices causal"},
      {"counts_f16",
       "batch=2 queries=40 keys=70 kv_heads=1 group=2 d=16 d_v=16 f16 choosers=1 "
       "entries=3 q_block_size=20 k_block_size=24 indices counts"},
      {"mask_single_keys",
       "batch=1 queries=33 keys=41 kv_heads=2 group=1 d=16 d_v=16 f32 choosers=2 "
       "q_block_size=16 k_block_size=1 mask"},
      {"single_keys_causal_f16",
       "batch=2 queries=40 keys=300 kv_heads=2 group=2 d=24 d_v=24 f16 choosers=2 "
       "entries=90 q_block_size=16 k_block_size=1 indices counts causal"},
      {"single_queries_bf16",
       "batch=1 queries=90 keys=170 kv_heads=2 group=2 d=64 d_v=64 bf16 choosers=2 "
       "entries=4 q_block_size=1 k_block_size=32 indices counts causal"},
      {"single_queries_of_12_heads_bf16",
       "batch=1 queries=50 keys=90 kv_heads=2 group=12 d=64 d_v=64 bf16 choosers=2 "
       "entries=6 q_block_size=1 k_block_size=4 indices causal"},
      {"wide_blocks_bf16",
       "batch=1 queries=260 keys=300 kv_heads=2 group=2 d=64 d_v=64 bf16 choosers=2 "
       "entries=2 q_block_size=128 k_block_size=128 indices causal"},
      {"features_192_128_bf16",
       "batch=1 queries=90 keys=140 kv_heads=2 group=2 d=192 d_v=128 bf16 choosers=2 "
       "entries=2 q_block_size=32 k_block_size=48 indices causal"},
      {"features_96_f16",
       "batch=1 queries=70 keys=130 kv_heads=2 group=2 d=96 d_v=96 f16 choosers=4 "
       "entries=2 q_block_size=16 k_block_size=64 indices"},
      {"features_256_odd_blocks_bf16",
       "batch=1 queries=75 keys=110 kv_heads=1 group=2 d=256 d_v=256 bf16 choosers=1 "
       "entries=3 q_block_size=7 k_block_size=24 indices"},
      {"packed",
       "sequences=4 queries=74 keys=172 kv_heads=2 group=2 d=16 d_v=24 f32 choosers=2 "
       "q_blocks=5 entries=3 q_block_size=16 k_block_size=16 cu_seqlens_q cu_seqlens_k "
       "indices counts causal"},
      {"packed_bf16",
       "sequences=4 queries=276 keys=747 kv_heads=2 group=2 d=64 d_v=64 bf16 choosers=4 "
       "q_blocks=5 entries=4 q_block_size=64 k_block_size=64 cu_seqlens_q cu_seqlens_k "
       "indices causal"},
      {"packed_mask_f16",
       "sequences=4 queries=166 keys=272 kv_heads=1 group=4 d=64 d_v=64 f16 choosers=1 "
       "q_blocks=11 k_blocks=34 q_block_size=16 k_block_size=8 cu_seqlens_q cu_seqlens_k "
       "mask"},
      {"packed_single_queries_bf16",
       "sequences=4 queries=166 keys=422 kv_heads=2 group=2 d=64 d_v=64 bf16 choosers=2 "
       "q_blocks=166 entries=4 q_block_size=1 k_block_size=64 cu_seqlens_q cu_seqlens_k "
       "indices counts causal"},
      {"diagonal_parts_bf16",
       "batch=1 queries=300 keys=300 kv_heads=2 group=2 d=64 d_v=64 bf16 choosers=2 "
       "entries=2 q_block_size=256 k_block_size=256 indices causal"}};
  return with_more(all, more);
}

std::vector<Example> block_sparse_measured() {
  return {{"4096_64x64_10%",
           "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64 f32 choosers=8 "
           "entries=7 q_block_size=64 k_block_size=64 indices"},
          {"4096_64x64_25%",
           "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64 f32 choosers=8 "
           "entries=18 q_block_size=64 k_block_size=64 indices"},
          {"4096_16x64_grouped",
           "batch=1 queries=4096 keys=4096 kv_heads=1 group=8 d=64 d_v=64 f32 choosers=1 "
           "entries=7 q_block_size=16 k_block_size=64 indices"},
          {"4096_128x1",
           "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64 f32 choosers=8 "
           "entries=512 q_block_size=128 k_block_size=1 indices"}};
}

}  // namespace tegula::ops
