// Smaller versions of a program.
#pragma once
#include <functional>

#include "fuzz/program.hpp"
#include "reduce/edits.hpp"

namespace tegula::fuzz {

using reduce_kernels::count_statements;

// The program in which the extent `from` is `to`, of tiles, loops, tensors and their arguments.
Program with_extent(const Program& program, std::int64_t from, std::int64_t to);
// All extents and constants of more than 1, the largest first.
std::vector<std::int64_t> extents_of(const Program& program);

// The program with another kernel.
Program with_kernel(const Program& program, ir::Kernel kernel);

}  // namespace tegula::fuzz
