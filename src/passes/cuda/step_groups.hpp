// Which neighbouring statements of a step are interleaved part by part, instead of running one after another.
#pragma once
#include <vector>

#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

struct StepGroup {
  enum class Kind : std::uint8_t {
    one,           // one statement
    exponentials,  // a loop over exponentials, and the sums of its rows if they follow: a wait may stand
                   // inside
    operand,       // a loop that makes a left operand, and the product of it: each part is multiplied while
                   // the next one is made
  };
  Kind kind = Kind::one;
  std::size_t first = 0, count = 1;  // statements of the body
  int parts = 1;                     // of an operand
};

// `waits[i]`: before statement i of the body a tile is awaited, so that it stands alone.
std::vector<StepGroup> step_groups(const ir::Body& body, const std::vector<bool>& waits,
                                   const std::vector<GemmPlan>& plans);

// Whether each element that the loop stores is an exponential.
bool has_exponentials(const ir::Stmt& s);

}  // namespace tegula::passes
