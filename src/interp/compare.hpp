// Whether two runs of a kernel in different orders agree.
#pragma once
#include <vector>

#include "interp/machine.hpp"

namespace tegula::interp {

// For each buffer of the signature, whether its values depend on an unordered float sum.
std::vector<bool> unordered_buffers(const Signature& signature);

// A ProgramError at the statement that wrote the first element in which the runs differ.
void check_same(const Program& program, const std::vector<bool>& is_unordered, const Machine& first,
                const Machine& second);

}  // namespace tegula::interp
