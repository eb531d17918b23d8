// What the compiler makes of a kernel for NVIDIA GPUs, as pictures: a file for each grid.
#pragma once
#include <string>
#include <vector>

#include "passes/cuda/plan_gemms.hpp"
#include "tegula/lang.hpp"

namespace tegula::tool {

// Makes the folder unless there is one; an ArgumentError names the option and says why that cannot be.
void prepare_folder(const std::string& option, const std::string& folder);
// The path of the file, which appears complete or not at all.
std::string write_complete(const std::string& folder, const std::string& name, const std::string& text);

// `<kernel>_<grid>.layout.svg` and `<kernel>_<grid>.schedule.svg`; each appears complete or not at all. The
// names of the files, and for grids without a schedule a line that says so.
std::vector<std::string> write_layouts(const lang::Kernel& kernel, const passes::CudaTarget& target,
                                       const std::string& folder);
std::vector<std::string> write_schedules(const lang::Kernel& kernel, const passes::CudaTarget& target,
                                         const std::string& folder);

}  // namespace tegula::tool
