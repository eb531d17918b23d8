// Calls between and around the examples of products of groups of rows.
#pragma once
#include <string>
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

// The options of all calls; whether k is cut into blocks of 128 with scales, which are counted.
struct GroupWords {
  std::string base;
  bool has_scales = false;
};
std::vector<CallMap> group_maps(const GroupWords& words);

}  // namespace tegula::ops
