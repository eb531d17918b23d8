// Compiles printed CUDA text to machine code, which the kernel cache stores by content.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "cuda/nvrtc.hpp"
#include "runtime/execution/kernel_cache.hpp"

namespace tegula::cuda {

// Always machine code, never PTX: the driver compiles nothing at load time.
struct MachineCode {
  std::string cubin;
  std::string log;  // of the compiler and the assembler
};

// `architecture` is 10 · major + minor; 90 means sm_90a, with the instructions that Hopper alone has.
MachineCode compile_code(const Nvrtc& nvrtc, const std::string& text,
                         const std::vector<Nvrtc::Header>& headers, int architecture,
                         const KernelCache& cache);

// Those that the printed text includes.
const std::vector<Nvrtc::Header>& device_headers();

// "sm_90a"
std::string architecture_name(int architecture);

// What the assembler says of one function.
struct Resources {
  std::string function;
  int registers = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0, spill_load_bytes = 0;
  int static_shared_bytes = 0;

  int spilled_bytes() const { return std::max(spill_store_bytes, spill_load_bytes); }
};
std::vector<Resources> read_resources(const std::string& log);
// Lines of the log that are neither such statements nor empty: warnings, remarks on wgmma (C75xx).
std::vector<std::string> read_remarks(const std::string& log);

}  // namespace tegula::cuda
