#include "ops/attention/maps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tegula::ops {

namespace {

const std::string usual_call = "batch=1 queries=4096 keys=4096 kv_heads=2 group=4 d=128 d_v=128 bf16";

// Values have up to 512 features.
std::string of_both(int features) { return fmt::format("d={} d_v={}", features, std::min(features, 512)); }

CallMap map_of_features() {
  CallMap map{"features", usual_call, {}, {"", "causal", "f16 causal", "causal left=511", "softcap=30"}};
  for (int features = 8; features <= 576; features += 8) map.columns.push_back(of_both(features));
  for (const auto& [next, odd] :
       {std::pair(8, 1), {8, 7}, {40, 33}, {104, 100}, {128, 125}, {200, 193}, {264, 260}, {520, 513}})
    map.columns.insert(std::ranges::find(map.columns, of_both(next)), of_both(odd));
  return map;
}

CallMap map_of_lengths() {
  CallMap map{"lengths", usual_call, {}, {"", "causal", "causal d=64 d_v=64", "causal layout=bhsd"}};
  for (const auto& [batch, length] :
       {std::pair(256, 1), {128, 17}, {64, 63},  {64, 64},  {64, 65},  {32, 127}, {32, 128}, {32, 129},
        {16, 257},         {16, 333}, {8, 511},  {8, 512},  {8, 513},  {4, 1000}, {4, 1023}, {4, 1024},
        {4, 1025},         {2, 2047}, {2, 2048}, {1, 4095}, {1, 4096}, {1, 4097}})
    map.columns.push_back(fmt::format("batch={} queries={} keys={}", batch, length, length));
  return map;
}

// Queries and keys of different numbers.
CallMap map_of_few_queries() {
  CallMap map{"queries", usual_call, {}, {"keys=1000", "keys=4096", "keys=4097", "keys=16384"}};
  for (const int queries : {1, 2, 7, 16, 33, 64, 100, 128, 333, 512, 1000, 2048})
    for (const char* mask : {"", " causal"})
      map.columns.push_back(fmt::format("queries={}{}", queries, mask));
  return map;
}

// Heads of a group, which share the tiles of few queries.
CallMap map_of_few_queries_of_groups() {
  CallMap map{"groups_of_few_queries",
              "batch=8 queries=1 keys=8192 kv_heads=2 group=4 d=128 d_v=128 bf16",
              {},
              {"", "queries=2", "queries=4", "queries=16", "queries=64 causal"}};
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 24, 28, 32, 64, 71, 128})
    map.columns.push_back(fmt::format("group={}", group));
  return map;
}

// Sequences that a tile or two hold.
CallMap map_of_short() {
  CallMap map{"short",
              "batch=64 queries=128 keys=128 kv_heads=2 group=4 d=128 d_v=128 bf16",
              {},
              {"", "causal", "d=64 d_v=64", "batch=2"}};
  for (const int length :
       {1, 2, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 79, 81, 96, 97, 112, 127, 128, 129, 130, 160, 192, 193})
    map.columns.push_back(fmt::format("queries={0} keys={0}", length));
  return map;
}

// Few blocks, and one more than there are processors.
CallMap map_of_heads() {
  CallMap map{"heads",
              "batch=1 queries=1024 keys=1024 kv_heads=1 group=1 d=128 d_v=128 bf16",
              {},
              {"", "causal", "queries=256 keys=256", "queries=512 keys=4096"}};
  for (const int batch : {1, 2, 3, 5, 8, 9, 16, 17, 33, 34, 64, 66, 67, 132, 133, 400})
    map.columns.push_back(fmt::format("batch={}", batch));
  for (const char* heads : {"kv_heads=8 group=4", "kv_heads=1 group=33", "kv_heads=11 group=3"})
    map.columns.emplace_back(heads);
  return map;
}

// Queries that see no keys, or nearly none, under masks together with what else changes scores.
CallMap map_of_masks() {
  return {"masks",
          usual_call,
          {"queries=1000 keys=5000", "queries=5000 keys=1000", "queries=100 keys=4096",
           "queries=4096 keys=100", "queries=129 keys=8192", "queries=8192 keys=129", "queries=4096 keys=1",
           "queries=333 keys=334", "queries=333 keys=332"},
          {"", "causal", "left=127", "causal left=0", "causal left=127 sinks:f32", "causal softcap=30",
           "left=127 right=64 sinks:f32 softcap=30"}};
}

// Some 16,384 tokens.
CallMap map_of_packed() {
  const std::string packed =
      "queries=16384 keys=16384 kv_heads=4 group=4 d=128 d_v=128 bf16 cu_seqlens_q cu_seqlens_k causal";
  CallMap map{"packed", packed, {}, {"packing=even", "packing=rising", "packing=one_long", "packing=empty"}};
  for (const int sequences : {1, 3, 16, 64, 255, 1000})
    for (const char* more : {"", " d=64 d_v=64"})
      map.columns.push_back(fmt::format("sequences={}{}", sequences, more));
  return map;
}

CallMap map_of_strides() {
  return {"strides",
          usual_call,
          {"strides=plain", "strides=sliced", "strides=padded", "strides=odd", "strides=swapped"},
          {"", "causal", "layout=bhsd", "d=64 d_v=64", "d=192 d_v=128", "queries=4097 keys=4097",
           "f16 group=1", "f32 d=64 d_v=64", "queries=16"}};
}

// Heads and features of models, at lengths and under masks that are not those of the other maps.
CallMap map_of_models() {
  CallMap map{"models",
              "batch=1 queries=4096 keys=4096 bf16",
              {},
              {"", "causal", "causal left=1023", "causal left=1023 softcap=50",
               "causal queries=4097 keys=4097", "causal batch=4 queries=1023 keys=1023",
               "batch=16 queries=333 keys=333", "causal queries=1000 keys=5096"}};
  const auto add = [&](int kv_heads, int group, int d, int d_v) {
    map.columns.push_back(fmt::format("kv_heads={} group={} d={} d_v={}", kv_heads, group, d, d_v));
  };
  add(8, 3, 128, 128), add(4, 7, 128, 128), add(8, 5, 128, 128), add(1, 71, 64, 64);
  add(32, 1, 96, 96), add(32, 1, 80, 80), add(16, 1, 72, 72), add(8, 1, 40, 40), add(8, 2, 112, 112);
  add(8, 1, 160, 160), add(8, 2, 256, 256), add(16, 1, 192, 128), add(1, 16, 576, 512);
  return map;
}

// One by one and in pairs.
CallMap map_of_options(const std::vector<std::string>& more) {
  std::vector<std::string> alone{"",           "causal",    "left=255",    "left=127 right=64",
                                 "softcap=30", "sinks:f32", "layout=bhsd", "scale=0.1",
                                 "f16"};
  alone.insert(alone.end(), more.begin(), more.end());
  return {"options", usual_call, alone, alone};
}

}  // namespace

std::vector<CallMap> attention_maps(const std::vector<std::string>& more) {
  return {map_of_lengths(),
          map_of_models(),
          map_of_few_queries(),
          map_of_few_queries_of_groups(),
          map_of_short(),
          map_of_heads(),
          map_of_masks(),
          map_of_packed(),
          map_of_strides(),
          {"groups",
           usual_call,
           {"kv_heads=32 group=1", "kv_heads=16 group=2", "kv_heads=8 group=3", "kv_heads=8 group=4",
            "kv_heads=8 group=5", "kv_heads=4 group=7", "kv_heads=4 group=8", "kv_heads=2 group=16",
            "kv_heads=1 group=32", "kv_heads=1 group=64", "kv_heads=1 group=71", "kv_heads=1 group=128"},
           {"", "causal", "causal d=64 d_v=64", "causal d=256 d_v=256"}},
          {"features_of_values",
           usual_call,
           {"d=40", "d=64", "d=96", "d=112", "d=128", "d=160", "d=192", "d=224", "d=256", "d=512", "d=576"},
           {"d_v=32", "d_v=64", "d_v=80", "d_v=96", "d_v=128", "d_v=160", "d_v=192", "d_v=256", "d_v=512"}},
          map_of_options(more),
          {"types",
           usual_call,
           {"bf16", "f16", "f32", "e4m3", "e4m3 q_scale k_scale v_scale"},
           {"", "causal", "d=64 d_v=64", "d=256 d_v=256", "queries=4", "causal left=511"}},
          map_of_features()};  // the largest comes last
}

}  // namespace tegula::ops
