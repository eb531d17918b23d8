// Calls between and around the examples of attention over selected blocks and its gradients.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

std::vector<CallMap> block_sparse_maps();

}  // namespace tegula::ops
