#include "ops/block_sparse/maps.hpp"

namespace tegula::ops {

namespace {

// Some 16,384 tokens. Lists have as many rows as the longest sequence may have blocks.
CallMap map_of_packed() {
  const std::string packed =
      "queries=16384 keys=16384 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 indices entries=8 "
      "q_blocks=256 q_block_size=64 k_block_size=64 cu_seqlens_q cu_seqlens_k causal";
  return {"packed",
          packed,
          {"sequences=1", "sequences=3", "sequences=16", "sequences=64", "sequences=255"},
          {"packing=even", "packing=rising", "packing=one_long", "packing=empty", "packing=even d=64 d_v=64",
           "packing=even q_block_size=128 k_block_size=128"}};
}

// Rates count all keys: masks of a map name about as many.
CallMap map_of_masks() {
  return {"masks",
          "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 mask",
          {"k_block_size=1", "k_block_size=16", "k_block_size=64", "k_block_size=128"},
          {"q_block_size=16", "q_block_size=64", "q_block_size=64 f16", "q_block_size=128"}};
}

}  // namespace

std::vector<CallMap> block_sparse_maps(const std::vector<std::string>& more) {
  const std::string base =
      "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 indices entries=16 "
      "q_block_size=64 k_block_size=64";
  const std::vector<std::string> features{"d=64 d_v=64",   "d=80 d_v=80",   "d=96 d_v=96",   "d=128 d_v=128",
                                          "d=160 d_v=160", "d=192 d_v=128", "d=192 d_v=192", "d=256 d_v=256"};
  std::vector<std::string> alone{"", "causal", "softcap=30", "scale=0.1", "layout=bhsd", "counts"};
  alone.insert(alone.end(), more.begin(), more.end());
  return {
      {"blocks",
       base,
       {"q_block_size=1", "q_block_size=8", "q_block_size=16", "q_block_size=32", "q_block_size=48",
        "q_block_size=64", "q_block_size=80", "q_block_size=96", "q_block_size=128", "q_block_size=192",
        "q_block_size=256"},
       // About as many keys in all.
       {"k_block_size=1 entries=512", "k_block_size=16 entries=64", "k_block_size=32 entries=32",
        "k_block_size=48 entries=21", "k_block_size=64 entries=16", "k_block_size=80 entries=13",
        "k_block_size=96 entries=11", "k_block_size=128 entries=8"}},
      {"features",
       base,
       features,
       {"", "causal", "q_block_size=128 k_block_size=128", "q_block_size=1", "k_block_size=1 entries=512"}},
      {"lengths",
       base,
       {"queries=1024 keys=1024", "queries=4032 keys=4032", "queries=4095 keys=4095",
        "queries=4096 keys=4096", "queries=4097 keys=4097", "queries=4128 keys=4128"},
       {"", "causal", "q_block_size=128 k_block_size=128"}},
      {"groups",
       base,
       {"kv_heads=8 choosers=8 group=1", "kv_heads=4 choosers=4 group=2", "kv_heads=2 group=4",
        "kv_heads=1 choosers=1 group=8", "kv_heads=1 choosers=1 group=16"},
       {"", "causal", "q_block_size=1", "q_block_size=16"}},
      {"strides",
       base,
       {"strides=plain", "strides=sliced", "strides=padded", "strides=odd", "strides=swapped"},
       {"", "causal", "layout=bhsd", "q_block_size=128 k_block_size=128", "q_block_size=1"}},
      map_of_packed(),
      map_of_masks(),
      {"options", base, alone, alone},
      {"types", base, {"bf16", "f16", "f32"}, {"", "d=64 d_v=64", "q_block_size=128 k_block_size=128"}}};
}

}  // namespace tegula::ops
