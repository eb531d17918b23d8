// The contract of the IR, checked between passes: a pass that breaks a rule is found there and not in a
// kernel.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::ir {

// Throws InternalError that states the rule and shows the statement.
void verify(const Kernel& kernel);

}  // namespace tegula::ir
