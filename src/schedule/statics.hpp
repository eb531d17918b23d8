// What can be checked of a schedule without running it: references, sizes, registers.
#pragma once
#include <optional>

#include "schedule/finding.hpp"

namespace tegula::schedule {

std::optional<Finding> check_statically(const Schedule& schedule);

}  // namespace tegula::schedule
