// Checks a schedule by running it: no deadlock, no race, exact barriers, for the trip counts, guards, tiles
// and orders that are tried here. A clean result guarantees no more than that.
#pragma once
#include <optional>

#include "schedule/finding.hpp"

namespace tegula::schedule {

// Races are found in any order that meets them; deadlocks and early phases may need a certain one.
struct Thoroughness {
  int combinations = 12;    // of trip counts, at most
  bool all_orders = false;  // else two per combination, in turn
};
inline constexpr Thoroughness thorough = {36, true};

// The first rule that the schedule breaks.
std::optional<Finding> verify(const Schedule& schedule, const Thoroughness& how = {});

// Throws what `verify` finds: a defect of the compiler's plan, or of a schedule that its author wrote.
void check(const Schedule& schedule);

}  // namespace tegula::schedule
