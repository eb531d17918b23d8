// What tests of single passes share: a kernel as the passes in front of printing leave it, and its
// statements.
#pragma once
#include <memory>
#include <vector>

#include "ir/visit.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "passes/cuda/specialize_roles.hpp"
#include "tegula/lang.hpp"

namespace tegula::passes::testing {

// All statements of that kind, in the order of the program.
template <class Node>
std::vector<const Node*> all_of(const ir::Body& body) {
  std::vector<const Node*> result;
  ir::for_each_stmt(body, [&](const ir::Stmt& s) {
    if (const auto* n = ir::as<Node>(s)) result.push_back(n);
  });
  return result;
}

// A kernel of one grid, and its plan.
struct Lowered {
  CudaTarget target;
  CudaPlan plan;
  std::shared_ptr<const ir::Kernel> written;
  explicit Lowered(const lang::Kernel& kernel, CudaTarget of = {})
      : target(of), plan(plan_for_cuda(*kernel.ir(), of)), written(kernel.ir()) {}

  const ir::Grid& grid() const { return plan.kernel.grids.front(); }
  const ir::Body& body() const { return grid().body; }
  // Whose sums the threads store, before its steps are dealt to warp groups.
  Roles undealt() const { return plan_before(*written, target, "deal_steps").grids[0].ways.back(); }
  // As they are before products are delayed and loads ordered.
  std::optional<Roles> roles() const { return plan_before(*written, target, "exits_of_all").grids[0].roles; }
};

}  // namespace tegula::passes::testing
