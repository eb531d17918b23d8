// A role's events as one list with jumps, for stepping through them.
#pragma once
#include "schedule/event.hpp"

namespace tegula::schedule {

struct Step {
  enum class Kind : std::uint8_t { event, loop, again, guard, end_guard };
  Kind kind;
  const Event* event;
  int jump = 0;           // loop and guard: after the body; again: to the loop
  bool has_gemm = false;  // of a guard
};

std::vector<Step> flatten(const Events& prologue, const Events& events);

}  // namespace tegula::schedule
