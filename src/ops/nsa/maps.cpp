#include "ops/nsa/maps.hpp"

namespace tegula::ops {

std::vector<CallMap> nsa_maps() {
  const std::string base =
      "batch=1 queries=4096 keys=4096 kv_heads=1 selecting=1 group=16 d=128 d_v=128 bf16 entries=16 "
      "block_size=64";
  // About as many keys in all.
  const std::vector<std::string> blocks{"block_size=16 entries=64", "block_size=32 entries=32",
                                        "block_size=48 entries=21", "block_size=64",
                                        "block_size=128 entries=8"};
  return {{"features",
           base,
           {"d=64 d_v=64", "d=96 d_v=96", "d=128 d_v=128", "d=192 d_v=128", "d=192 d_v=192", "d=256 d_v=256"},
           blocks},
          {"groups",
           base,
           {"kv_heads=16 selecting=16 group=1", "kv_heads=8 selecting=8 group=2",
            "kv_heads=4 selecting=4 group=4", "kv_heads=2 selecting=2 group=8", "group=16", "group=32",
            "group=64"},
           blocks},
          {"lengths",
           base,
           {"queries=1000 keys=1000", "queries=2048 keys=2048", "queries=4095 keys=4095",
            "queries=4096 keys=4096", "queries=4097 keys=4097", "queries=8192 keys=8192"},
           blocks}};
}

}  // namespace tegula::ops
