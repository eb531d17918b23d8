// Determines which products of a step may overlap with the next step's work, from what the statements of the
// step access.
//
// The last products of a step, after which nothing is done, are delayed: they are issued after the first
// products of the next step (those before which no sum is needed) and overlap with the work on their sums.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

struct LateProducts {
  std::size_t early = 0;  // the statements up to this one come before the delayed ones of the step before
  std::vector<std::size_t> late;  // these are delayed
  // Tiles that both the early and the delayed products read: two steps need theirs at the same time.
  std::vector<ir::BufferPtr> held;
};

// The reason is empty where nothing could be expected: in loops of one product.
Planned<LateProducts> late_products(const ir::For& loop, const Roles& roles, const CudaTarget& target);

// Whether a product by wgmma runs until it is awaited: one whose sums are added is awaited at once.
bool can_run_on(const ir::Stmt& s, const Roles& roles, const CudaTarget& target);

}  // namespace tegula::passes
