// All decisions about a kernel before it is printed for a GPU. The passes of cuda_passes.hpp fill it in, one
// after another; the printer only reads it.
#pragma once
#include <unordered_set>
#include <vector>

#include "passes/cuda/copy_rings.hpp"
#include "passes/cuda/fragment_forms.hpp"
#include "passes/cuda/grid_waits.hpp"
#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/lane_sums.hpp"
#include "passes/cuda/specialize_roles.hpp"
#include "passes/cuda/step_parts.hpp"
#include "passes/cuda/store_forms.hpp"
#include "schedule/schedule.hpp"

namespace tegula::passes {

struct GridPlan {
  std::string function;                                  // the name of what is printed
  std::optional<Roles> roles;                            // none: all threads of a block do the same
  Reason no_roles;                                       // why there are none
  Reason not_spread;                                     // why its block is one CTA, where a cluster is asked
  std::vector<Roles> ways;                               // of the roles to store, until one is chosen
  ConsumerProgram consumers;                             // with roles
  CopyRings copy_rings;                                  // without roles
  StepParts steps;                                       // of the consumers
  std::optional<schedule::Schedule> schedule;            // of the roles, or of all threads with rings
  HeldFragments held;                                    // without roles: what layouts begin with
  Layouts layouts;                                       // of what computes: the consumers, or all threads
  Buffers operands;                                      // shared tiles that products read in blocks
  LaneSums lane_sums;                                    // of the consumers
  FragmentForms forms;                                   // of the fragments of what computes
  std::unordered_set<const ir::ExprNode*> exits_of_all;  // conditions under which no block goes on
};

// What a plan of a grid has shown, for the next one.
struct Shown {
  std::int64_t other_bytes = -1;  // GridHints::other_shared_bytes, if determined by the printer
  Reason not_spread = {};         // why its block cannot be spread
};
using ShownOfGrids = std::vector<Shown>;  // empty where there was no plan before

struct CudaPlan {
  CudaTarget target;
  ir::Kernel kernel;
  ShownOfGrids shown;
  StoreForms stores;            // until a way is chosen for each grid
  std::vector<GridPlan> grids;  // of the kernel's, in their order
  std::vector<GridWait> waits;  // of the grids for each other

  const ir::Body& computing(std::size_t grid) const;
  int computing_threads(std::size_t grid) const;
};

// The plan as text to read: the program, and for each grid what was decided so far.
std::string print(const CudaPlan& plan);

}  // namespace tegula::passes
