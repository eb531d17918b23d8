// Calls of conv2d between and around those that are measured.
#pragma once
#include <vector>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

std::vector<CallMap> image_maps();

}  // namespace tegula::ops
