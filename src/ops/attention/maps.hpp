// Calls between and around the examples of dense attention and its gradients.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

std::vector<CallMap> attention_maps();

}  // namespace tegula::ops
