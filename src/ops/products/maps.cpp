#include "ops/products/maps.hpp"

#include <fmt/format.h>

namespace tegula::ops {

namespace {

std::string depth(const GroupWords& w, int k) {
  return w.has_scales ? fmt::format("k={} blocks={}", k, (k + 127) / 128) : fmt::format("k={}", k);
}

// Rows of all groups, which have as many each.
CallMap groups(const GroupWords& w) {
  CallMap map{"groups", fmt::format("{} {} n=768 packing=even", w.base, depth(w, 2048)), {}, {}};
  for (const int count : {1, 2, 3, 4, 8, 16, 32, 64, 128})
    map.columns.push_back(fmt::format("groups={}", count));
  for (const int rows : {65536, 16384, 4096, 1000, 256}) map.rows.push_back(fmt::format("m={}", rows));
  return map;
}

CallMap shapes(const GroupWords& w) {
  CallMap map{"shapes", w.base + " groups=8 m=16384", {}, {}};
  for (const int k : {64, 512, 1000, 1024, 2048, 2880, 4088, 4096, 4097, 7168})
    map.columns.push_back(depth(w, k));
  for (const int n : {64, 128, 512, 768, 1000, 2048, 4096, 4097}) map.rows.push_back(fmt::format("n={}", n));
  return map;
}

CallMap packings(const GroupWords& w) {
  return {"packings",
          fmt::format("{} m=16384 {} n=2048", w.base, depth(w, 2048)),
          {"packing=random", "packing=even", "packing=rising", "packing=one_long", "packing=empty"},
          {"groups=2", "groups=8", "groups=32", "groups=128"}};
}

}  // namespace

std::vector<CallMap> group_maps(const GroupWords& words) {
  return {groups(words), shapes(words), packings(words)};
}

}  // namespace tegula::ops
