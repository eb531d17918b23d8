// Writes what passes do to kernels, for inspection.
#pragma once
#include "passes/passes.hpp"

namespace tegula::passes {

// As TEGULA_DUMP says: `stderr`, or a directory that gets a file for every pass that changed a kernel or its
// plan, named kernel.target.number.pass.ir. Empty if the variable is not set.
Observer dumper(std::string target);

// The same for the notes of a compiled kernel, in kernel.target.notes.
void dump_notes(const std::string& kernel, std::string target, const std::vector<std::string>& notes);

}  // namespace tegula::passes
