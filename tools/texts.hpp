// What the compiler makes of a kernel, as text to read.
#pragma once
#include <string>

#include "tegula/lang.hpp"

namespace tegula::tool {

// The program as it was written, and what each pass changes in it; passes that change nothing are named too.
std::string passes_text(const lang::Kernel& kernel);
// The C++ that is compiled for the CPU.
std::string cpp_text(const lang::Kernel& kernel);

}  // namespace tegula::tool
