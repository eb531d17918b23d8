// Calls between and around the examples of attention over selected blocks and its gradients.
#pragma once
#include <string>
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

// `more` are options that gradients have.
std::vector<CallMap> block_sparse_maps(const std::vector<std::string>& more = {});

}  // namespace tegula::ops
