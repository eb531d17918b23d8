// Prints what a bundle knows about a kernel, as the tables declared in src/device/bundle/tables.hpp.
#pragma once
#include <optional>
#include <string>

#include "codegen/cpu.hpp"
#include "codegen/cuda_program.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::ahead {

// A program for GPUs with the symbol of its machine code.
struct CudaCode {
  codegen::CudaProgram program;
  std::string symbol;
};

struct BundledKernel {
  Signature signature;
  std::optional<codegen::CpuProgram> cpu;
  std::optional<CudaCode> cuda, cuda_by_threads;
  int architecture = 90;
};

// Definitions that end with that of `const Kernel NAME`. An ArgumentError if an extent or a requirement
// computes what bundles do not.
std::string tables(const BundledKernel& kernel, const std::string& name);

// The name of a function of the CPU's text in the object for an instruction set.
std::string function_for(const std::string& function, std::string_view isa);

// The text as a literal of C.
std::string c_literal(std::string_view text);

}  // namespace tegula::ahead
