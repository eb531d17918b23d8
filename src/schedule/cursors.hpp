// Rings of one role that are always at the same slot, so that one cursor serves them all.
#pragma once
#include <vector>

#include "schedule/schedule.hpp"

namespace tegula::schedule {

// For every ring the first of those that advance with it, perhaps itself: rings of one depth which the role
// advances once, in one and the same list of events, and does not use between the advances there.
std::vector<int> shared_cursors(const Schedule& schedule, const Role& role);

}  // namespace tegula::schedule
