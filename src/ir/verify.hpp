// The contract of the IR, checked between passes: a pass that breaks a rule is found there and not in a
// kernel.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::ir {

// Of what a role of a block runs less is asked: a step of a pipelined loop may stand in several places, which
// declare its tiles and variables again, and a branch for rows may say what the other rows do.
enum class Contract : std::uint8_t { of_programs, of_roles };

// Throws InternalError that states the rule and shows the statement.
void verify(const Kernel& kernel, Contract contract = Contract::of_programs);

}  // namespace tegula::ir
