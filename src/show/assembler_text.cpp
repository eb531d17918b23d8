#include "show/assembler_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda_program.hpp"
#include "cuda/assembler_notes.hpp"
#include "cuda/compile.hpp"

namespace tegula::shown {

std::string assembler_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const cuda::Nvrtc* nvrtc = cuda::find_nvrtc();
  if (!nvrtc)
    return "NVRTC was not found: registers of the machine code, spills and remarks of the assembler are "
           "unknown\n";
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  const cuda::MachineCode code =
      cuda::compile_code(*nvrtc, program.text, cuda::device_headers(), target.architecture, kernel_cache());
  std::string text;
  for (auto& own : cuda::read_resources(code.log))
    text += fmt::format("{}: {} registers of a thread in machine code, {} bytes spilled\n", own.function,
                        own.registers, std::max(own.spill_store_bytes, own.spill_load_bytes));
  for (auto& note : cuda::assembler_notes(code.log, *kernel.ir(), program)) text += "  " + note + "\n";
  return text;
}

}  // namespace tegula::shown
