// The program of warp groups for one loop whose steps are dealt to them: see deal_steps.hpp.
#pragma once
#include "passes/cuda/own_columns.hpp"
#include "passes/cuda/step_halves.hpp"
#include "passes/cuda/step_shares.hpp"

namespace tegula::passes {

struct DealtProgram {
  const StepShares& step;
  const OwnColumns& columns;
  const std::optional<StepHalves>& halves;  // of the last product's tile, where it comes in halves
  const ir::VariablePtr& group;
  const Roles& roles;  // with the rings of the program
};

// The loop, in a branch that is taken where it has a step. What groups do in it goes to `out`, the
// declarations of the shared tiles by which they send messages to `tiles`.
ir::Stmt dealt_loop(const ir::For& loop, const Loc& at, const DealtProgram& program, DealtSteps& out,
                    ir::Body& tiles);

}  // namespace tegula::passes
