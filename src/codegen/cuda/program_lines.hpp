// The lines of the tile program in printed text, for profilers and debuggers.
#pragma once
#include <string>

#include "ir/ir.hpp"

namespace tegula::codegen {

// The text with a #line directive for each line that says where in the program it comes from; those that
// follow belong to the same place.
std::string with_program_lines(const std::string& text, const ir::Kernel& kernel);

}  // namespace tegula::codegen
