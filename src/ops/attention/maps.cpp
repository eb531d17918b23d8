#include "ops/attention/maps.hpp"

#include <algorithm>

namespace tegula::ops {

namespace {

const std::string base = "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16";

CallMap features() {
  CallMap map{"features",
              base,
              stepped("d=# d_v=#", 8, 512, 8),
              {"", "causal", "f16 causal", "causal left=511", "softcap=30"}};
  const auto add_before = [&](const std::string& next, const std::string& odd) {
    map.columns.insert(std::ranges::find(map.columns, next), odd);
  };
  add_before("d=40 d_v=40", "d=33 d_v=33");
  add_before("d=104 d_v=104", "d=100 d_v=100");
  add_before("d=128 d_v=128", "d=125 d_v=125");
  return map;
}

CallMap lengths() {
  CallMap map{"lengths", base, {}, {"", "causal", "causal d=64 d_v=64", "causal layout=bhsd"}};
  for (const auto& [batch, length] : {std::pair(64, 64),
                                      {64, 65},
                                      {32, 128},
                                      {16, 257},
                                      {8, 512},
                                      {4, 1000},
                                      {4, 1023},
                                      {4, 1024},
                                      {4, 1025},
                                      {2, 2047},
                                      {2, 2048},
                                      {1, 4095},
                                      {1, 4096},
                                      {1, 4097}}) {
    const std::string n = std::to_string(length);
    map.columns.push_back("batch=" + std::to_string(batch) + " queries=" + n + " keys=" + n);
  }
  return map;
}

}  // namespace

std::vector<CallMap> attention_maps() {
  const std::vector<std::string> alone{"",          "causal",      "left=255", "softcap=30",
                                       "sinks:f32", "layout=bhsd", "scale=0.1"};
  return {lengths(),
          {"groups",
           base,
           {"kv_heads=32 group=1", "kv_heads=16 group=2", "kv_heads=8 group=4", "kv_heads=4 group=8",
            "kv_heads=2 group=16", "kv_heads=1 group=32", "kv_heads=1 group=128"},
           {"", "causal", "causal d=64 d_v=64", "causal d=256 d_v=256"}},
          {"features_of_values", base, stepped("d=#", 64, 256, 32), stepped("d_v=#", 64, 256, 32)},
          {"options", base, alone, alone},
          {"types", base, {"bf16", "f16", "f32"}, {"", "causal", "d=64 d_v=64", "d=256 d_v=256"}},
          features()};  // the largest comes last
}

}  // namespace tegula::ops
