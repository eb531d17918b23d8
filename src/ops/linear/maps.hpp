// Calls between and around the examples of scans and their gradients.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

// The words of an operator's dims: heads that q and k have, those of v for each, features of keys and of
// values; and the options of each of its rows.
struct ScanWords {
  std::string key_heads = "key_heads", group = "group", d = "d", d_v = "d_v";
  std::string base = "bf16 g";
};
std::vector<CallMap> scan_maps(const ScanWords& words = {});

}  // namespace tegula::ops
