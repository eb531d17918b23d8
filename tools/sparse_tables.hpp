// The measurements of sparse attention on a GPU, at the sizes of practice.
#pragma once
#include <string>

namespace tegula::tool {

// Whether there is such a table: of `nsa`, or of an operator.
bool has_gpu_table(const std::string& name);
void print_gpu_table(const std::string& name);

}  // namespace tegula::tool
