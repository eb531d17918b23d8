#include "ops/rows/maps.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::ops {

namespace {

std::string call_of(const RowWords& w, std::int64_t rows, std::int64_t width) {
  return fmt::format("{}={} {}={}", w.rows, rows, w.width, width);
}

// As many elements in all, which no second-level cache holds: widths around those at which plans change.
CallMap widths(const RowWords& w) {
  constexpr std::int64_t elements = 1 << 26;
  CallMap map{"widths", w.base, {}, w.kinds};
  for (const std::int64_t width :
       {8,     20,    64,    100,   127,   128,   129,   256,   500,    768,    1000,   1023,  1024,
        1025,  2048,  2880,  4095,  4096,  4097,  5120,  7168,  8191,   8192,   8193,   12288, 16383,
        16384, 16385, 20000, 32768, 32769, 50257, 65536, 65537, 128256, 131072, 131073, 262144})
    map.columns.push_back(call_of(w, elements / width, width));
  return map;
}

CallMap few_rows(const RowWords& w) {
  CallMap map{"few", w.base, {}, {}};
  for (const std::int64_t rows : {1, 4, 16, 64, 132, 256, 1024})
    map.columns.push_back(fmt::format("{}={}", w.rows, rows));
  for (const std::int64_t width : {128, 1000, 4096, 4097, 16384, 16385, 65536, 131072, 131073})
    map.rows.push_back(fmt::format("{}={}", w.width, width));
  return map;
}

}  // namespace

std::vector<CallMap> row_maps(const RowWords& words) { return {widths(words), few_rows(words)}; }

}  // namespace tegula::ops
