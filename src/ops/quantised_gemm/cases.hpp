// Calls of quantised_gemm: those that tests run, those that are measured, and those between and around them.
#pragma once
#include <vector>

#include "ops/schema/table.hpp"

namespace tegula::ops {

std::vector<Example> quantised_examples();
std::vector<Example> quantised_measured();
std::vector<CallMap> quantised_maps();

}  // namespace tegula::ops
