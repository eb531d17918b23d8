// Writes down what passes do to kernels, for those who want to look.
#pragma once
#include "passes/passes.hpp"

namespace tegula::passes {

// As TEGULA_DUMP says: `stderr`, or a directory that gets a file for every pass that changed a kernel or its
// plan, named kernel.target.number.pass.ir. Empty if the variable is not set.
Observer dumper(std::string target);

}  // namespace tegula::passes
