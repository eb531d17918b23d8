// Calls between and beside the examples of attention over chosen blocks and its gradients.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

std::vector<CallMap> block_sparse_maps();

}  // namespace tegula::ops
