// Translates remarks of ptxas for the author of the program: on products of warp groups and on register
// spills.
#pragma once
#include <string>
#include <vector>

#include "codegen/cuda_program.hpp"
#include "ir/kernel.hpp"

namespace tegula::cuda {

// `gemm.cpp:12: spills: …; …` of the grids whose functions the log of the compilation has remarks on, with
// the line of the grid, the reason and the remedy; none where there is nothing to say.
std::vector<std::string> assembler_notes(const std::string& log, const ir::Kernel& kernel,
                                         const codegen::CudaProgram& program);

}  // namespace tegula::cuda
