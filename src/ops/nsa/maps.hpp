// Calls between and beside the examples of attention over selected blocks and its gradients.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

std::vector<CallMap> nsa_maps();

}  // namespace tegula::ops
