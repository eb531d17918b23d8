// Which constructs of the language programs use.
#pragma once
#include <map>
#include <string>

#include "ir/kernel.hpp"

namespace tegula::fuzz {

// Counts the kernel once for every construct that it has.
void add_coverage(const ir::Kernel& kernel, std::map<std::string, std::int64_t>& counts);
// The constructs with their numbers of programs, and those of the table that none has.
std::string coverage_text(const std::map<std::string, std::int64_t>& counts);

}  // namespace tegula::fuzz
