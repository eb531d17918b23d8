// What the compiler makes of a kernel, as text to read.
#pragma once
#include <string>

#include "passes/cuda/plan_gemms.hpp"
#include "tegula/lang.hpp"

namespace tegula::shown {

// What each pass for CPUs changes; passes that change nothing are named too.
std::string pass_differences(const lang::Kernel& kernel);
// The same of passes for a GPU, and what each decides.
std::string pass_differences(const lang::Kernel& kernel, const passes::CudaTarget& target);
// The C++ that is compiled for the CPU.
std::string cpp_text(const lang::Kernel& kernel);

// A text without the comments that end its lines, which name places in the user's program.
std::string without_places(const std::string& text);

}  // namespace tegula::shown
