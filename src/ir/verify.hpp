// The contract of the IR, checked between passes: a pass that breaks a rule is caught there and not by a
// failing kernel.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::ir {

// The contract of roles is weaker: a step of a pipelined loop may occur in several places, each of which
// declares its tiles and variables again, and a row branch may have an alternative.
enum class Contract : std::uint8_t { of_programs, of_roles };

// Throws InternalError that states the rule and shows the statement.
void verify(const Kernel& kernel, Contract contract = Contract::of_programs);

}  // namespace tegula::ir
