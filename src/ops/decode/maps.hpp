// Calls between and around the examples of attention to caches.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

std::vector<CallMap> cache_maps();
std::vector<CallMap> latent_maps();

}  // namespace tegula::ops
