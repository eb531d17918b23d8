// Sums of rows that a loop forms step by step, as the denominator of softmax. The lanes that share a row may
// each keep their own part of such a sum, and meet once behind the loop.
#pragma once
#include <vector>

#include "ir/ir.hpp"

namespace tegula::passes {

// The fragments of f32 that the body, or a branch for rows in it, only adds row sums to and multiplies by
// what does not depend on them.
std::vector<ir::BufferPtr> lane_sums(const ir::Body& body);

}  // namespace tegula::passes
