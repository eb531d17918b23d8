// Products whose sums the work of their step adds to others: with two sets of sums that alternate, the next
// step's products run while the work adds those of this step.
//
// A loop  products to sums, work  becomes
//   products to sums A;  loop of two steps { products to B, work on A, products to A, work on B };
//   if a step remains { products to B };  work on A; and in that case { work on B }
#pragma once
#include <array>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

struct TwoSums {
  ir::Body products;                 // with the tiles that they read
  ir::Body work;                     // all else
  std::vector<ir::BufferPtr> sums;   // of the products, which the step declares
  std::vector<ir::BufferPtr> tiles;  // of rings that the work declares
  bool again = false;                // a step has several products to the same sums
};

// Empty unless every product of the loop overwrites sums of its step with products of loaded tiles, and the
// work writes only fragments and accesses nothing else that the products access.
std::optional<TwoSums> two_sums(const ir::For& loop, const Roles& roles, const CudaTarget& target);

// The loop with two sets of sums, where it has a step.
struct AlternatingLoop {
  ir::Body declared;  // the sums
  ir::Body body;
  ir::Stmt loop, left_over;  // in the body: of two steps, and the first branch for the last one
};
AlternatingLoop alternating_loop(const ir::For& loop, const TwoSums& plan, const Loc& at);

}  // namespace tegula::passes
