#include "ops/decode/maps.hpp"

#include <fmt/format.h>

#include <utility>

namespace tegula::ops {

namespace {

// A cache of 64 to 256 MB, which no second-level cache holds. Calls that read a part of it, by lengths,
// windows or lists, would have rates of bytes that they do not read: they have maps of their own.
const std::string usual_cache = "batch=16 queries=1 keys=8192 kv_heads=2 group=8 d=128 d_v=128 bf16",
                  usual_latents = "batch=32 queries=1 keys=4096 heads=64 d=576 row=576 bf16",
                  bytes = "k_cache:e4m3 v_cache:e4m3 k_scale v_scale";

std::string pages_of(int tokens, int batch, int keys) {
  const int width = (keys + tokens - 1) / tokens;
  return fmt::format("block_table page_size={} pages={} table_width={}", tokens, batch * width, width);
}

CallMap groups_of_caches() {
  CallMap map{"groups",
              usual_cache,
              {},
              {"", "queries=2 causal", "queries=4 causal", "queries=8 causal", "queries=16 causal",
               pages_of(64, 16, 8192), bytes}};
  for (const auto& [heads, group] : {std::pair(8, 1),
                                     {8, 2},
                                     {4, 3},
                                     {4, 4},
                                     {4, 5},
                                     {4, 7},
                                     {4, 8},
                                     {2, 16},
                                     {1, 32},
                                     {1, 64},
                                     {1, 71},
                                     {1, 128}})
    map.columns.push_back(fmt::format("kv_heads={} group={}", heads, group));
  return map;
}

CallMap lengths_of_caches() {
  CallMap map{"lengths", usual_cache, {}, {"", "queries=4 causal", "d=64 d_v=64", bytes}};
  for (const auto& [batch, keys] : {std::pair(256, 64),
                                    {256, 100},
                                    {256, 333},
                                    {128, 1000},
                                    {128, 1023},
                                    {128, 1024},
                                    {128, 1025},
                                    {64, 2048},
                                    {32, 4095},
                                    {32, 4096},
                                    {16, 8191},
                                    {16, 8192},
                                    {16, 8193},
                                    {8, 16384},
                                    {4, 32768},
                                    {2, 65536},
                                    {1, 131072}})
    map.columns.push_back(fmt::format("batch={} keys={}", batch, keys));
  return map;
}

CallMap pages_of_caches() {
  CallMap map{"pages", usual_cache, {}, {"", "d=64 d_v=64", "d=192 d_v=128", "queries=4 causal", bytes}};
  for (const int tokens : {1, 8, 16, 48, 64, 100, 128, 256})
    map.columns.push_back(pages_of(tokens, 16, 8192));
  return map;
}

CallMap parts_of_caches() {
  return {
      "parts",
      usual_cache,
      {"left=1023", "left=4095", "indices entries=13 k_block_size=64", "indices entries=26 k_block_size=32",
       "indices entries=6 k_block_size=128", "mask mask_blocks=128 k_block_size=64"},
      {"", pages_of(64, 16, 8192), "kv_heads=1 group=32", "d=64 d_v=64"}};
}

}  // namespace

std::vector<CallMap> cache_maps() {
  const std::vector<std::string> alone{"",    "causal queries=2",    "softcap=30", "sinks:f32", "scale=0.1",
                                       bytes, pages_of(64, 16, 8192)};
  return {groups_of_caches(),
          lengths_of_caches(),
          pages_of_caches(),
          parts_of_caches(),
          {"strides",
           usual_cache,
           {"strides=plain", "strides=sliced", "strides=padded", "strides=odd", "strides=swapped"},
           {"", "queries=4 causal", "d=64 d_v=64", pages_of(64, 16, 8192), "f16"}},
          {"options", usual_cache, alone, alone},
          {"features",
           usual_cache,
           stepped("d=# d_v=#", 16, 512, 16),
           {"", "queries=4 causal", pages_of(64, 16, 8192), bytes}}};
}

std::vector<CallMap> latent_maps() {
  return {{"heads",
           usual_latents,
           {"heads=1", "heads=8", "heads=16", "heads=20", "heads=32", "heads=64", "heads=96", "heads=128"},
           {"", "queries=2 causal", "queries=3 causal", "queries=8 causal", "d=512 row=512",
            pages_of(64, 32, 4096), "kv_cache:e4m3 kv_scale"}},
          {"lengths",
           usual_latents,
           {"batch=128 keys=512", "batch=128 keys=1000", "batch=64 keys=2047", "batch=64 keys=2048",
            "batch=32", "batch=32 keys=4097", "batch=8 keys=16384", "batch=1 keys=131072"},
           {"", "heads=16", "heads=128", "queries=2 causal"}},
          {"strides",
           usual_latents,
           {"strides=plain", "strides=sliced", "strides=padded", "strides=odd"},
           {"", "heads=16", "d=512 row=512", pages_of(64, 32, 4096)}}};
}

}  // namespace tegula::ops
