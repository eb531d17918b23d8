// What the compiler makes of a kernel, as text to read.
#pragma once
#include <span>
#include <string>

#include "passes/passes.hpp"
#include "tegula/lang.hpp"

namespace tegula::tool {

// What each pass changes; passes that change nothing are named too.
std::string pass_differences(const lang::Kernel& kernel, std::span<const passes::Pass> passes);
// The C++ that is compiled for the CPU.
std::string cpp_text(const lang::Kernel& kernel);

// A text without the comments that end its lines, which name places in the user's program.
std::string without_places(const std::string& text);

}  // namespace tegula::tool
