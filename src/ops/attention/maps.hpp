// Calls between and around the examples of dense attention and its gradients.
#pragma once
#include <string>
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

// `more` are options that gradients have.
std::vector<CallMap> attention_maps(const std::vector<std::string>& more = {});

}  // namespace tegula::ops
