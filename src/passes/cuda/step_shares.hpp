// Which statements of a step one warp group can run alone, and which all groups run for their own columns.
//
// The last product of a step adds to a sum whose columns the groups divide. All other work of the step forms
// the left operand of that product and what rows are scaled by; if nothing else outlives the step but
// fragments of rows, one group can do it for both: the others need the operand, and these rows.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// A sum of rows that the step only adds to and scales: each group keeps that of its own steps.
struct ApartSum {
  ir::BufferPtr sum, factor;  // null: it is not scaled
};

struct StepShares {
  std::vector<ir::Stmt> tiles;  // declarations of rings' tiles
  ir::Body own;                 // by one group: of the whole step but the operand
  ir::Body all;                 // by all groups: what touches the sum; the product is the last
  ir::Stmt made;                // the loop that makes the operand
  ir::BufferPtr sum, operand;
  std::vector<ir::BufferPtr> rows;          // fragments that `all`, or later steps, read as `own` leaves them
  std::vector<ir::BufferPtr> rows_of_step;  // those that the step declares
  std::vector<ApartSum> apart;

  const ir::Gemm& product() const { return *ir::as<ir::Gemm>(all.back()); }
};

// The reason is empty where nothing could be expected.
Planned<StepShares> step_shares(const ir::For& loop, const Roles& roles, const CudaTarget& target);

}  // namespace tegula::passes
