// Prints the functions of a bundle: their C declarations and C++ definitions.
#pragma once
#include <string>
#include <vector>

#include "ahead/tables.hpp"

namespace tegula::ahead {

std::string header(const std::vector<BundledKernel>& kernels, const std::string& name);
// In the order of the kernels, whose tables are named kernel_0, kernel_1, …
std::string definitions(const std::vector<BundledKernel>& kernels, const std::string& name);

}  // namespace tegula::ahead
