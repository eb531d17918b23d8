#include "ops/linear/maps.hpp"

#include <fmt/format.h>

namespace tegula::ops {

namespace {

std::string heads_of(const ScanWords& w, int key_heads, int group) {
  return fmt::format("{}={} {}={}", w.key_heads, key_heads, w.group, group);
}
std::string features_of(const ScanWords& w, int d, int d_v) {
  return fmt::format("{}={} {}={}", w.d, d, w.d_v, d_v);
}

// Some 16,384 tokens, of which one sequence has few or all.
CallMap lengths(const ScanWords& w) {
  CallMap map{"lengths",
              w.base + " " + features_of(w, 128, 128),
              {},
              {heads_of(w, 8, 2), heads_of(w, 2, 4), heads_of(w, 1, 1)}};
  for (const auto& [batch, tokens] : {std::pair(256, 1),
                                      {256, 2},
                                      {256, 8},
                                      {256, 9},
                                      {256, 63},
                                      {256, 64},
                                      {256, 65},
                                      {64, 257},
                                      {16, 1000},
                                      {16, 1024},
                                      {4, 4096},
                                      {4, 4097},
                                      {1, 16384},
                                      {1, 65536}})
    map.columns.push_back(fmt::format("batch={} tokens={}", batch, tokens));
  return map;
}

CallMap heads(const ScanWords& w) {
  CallMap map{"heads", w.base + " batch=1 " + features_of(w, 128, 128), {}, {"tokens=4096", "tokens=1000"}};
  for (const int key_heads : {1, 2, 4, 8, 16, 32, 64})
    for (const int group : {1, 4})
      if (key_heads * group <= 64) map.columns.push_back(heads_of(w, key_heads, group));
  return map;
}

CallMap features(const ScanWords& w) {
  CallMap map{"features", w.base + " batch=1 tokens=4096 " + heads_of(w, 16, 2), {}, {}};
  for (const int d : {64, 96, 128, 192, 256}) map.columns.push_back(fmt::format("{}={}", w.d, d));
  for (const int d_v : {64, 96, 128, 192, 256}) map.rows.push_back(fmt::format("{}={}", w.d_v, d_v));
  return map;
}

CallMap packed(const ScanWords& w) {
  return {"packed",
          w.base + " tokens=16384 cu_seqlens " + features_of(w, 128, 128),
          {"sequences=1", "sequences=4", "sequences=16", "sequences=64", "sequences=256", "sequences=1024"},
          {heads_of(w, 8, 2), heads_of(w, 2, 4)}};
}

}  // namespace

std::vector<CallMap> scan_maps(const ScanWords& words) {
  return {lengths(words), heads(words), features(words), packed(words)};
}

}  // namespace tegula::ops
