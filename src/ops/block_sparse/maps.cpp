#include "ops/block_sparse/maps.hpp"

namespace tegula::ops {

std::vector<CallMap> block_sparse_maps() {
  const std::string base =
      "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16 choosers=2 indices entries=16 "
      "q_block_size=64 k_block_size=64";
  const std::vector<std::string> features{"d=64 d_v=64",   "d=80 d_v=80",   "d=96 d_v=96",   "d=128 d_v=128",
                                          "d=160 d_v=160", "d=192 d_v=128", "d=192 d_v=192", "d=256 d_v=256"};
  const std::vector<std::string> alone{"", "causal", "softcap=30", "scale=0.1", "layout=bhsd", "counts"};
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
      {"options", base, alone, alone},
      {"types", base, {"bf16", "f16", "f32"}, {"", "d=64 d_v=64", "q_block_size=128 k_block_size=128"}}};
}

}  // namespace tegula::ops
