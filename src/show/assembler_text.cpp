#include "show/assembler_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda_program.hpp"
#include "cuda/assembler_notes.hpp"
#include "cuda/compile.hpp"

namespace tegula::shown {

std::optional<Assembled> assembled(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const cuda::Nvrtc* nvrtc = cuda::find_nvrtc();
  if (!nvrtc) return std::nullopt;
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  const cuda::MachineCode code =
      cuda::compile_code(*nvrtc, program.text, cuda::device_headers(), target.architecture, kernel_cache());
  return Assembled{cuda::read_resources(code.log), cuda::assembler_notes(code.log, *kernel.ir(), program)};
}

std::string assembler_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const auto found = assembled(kernel, target);
  if (!found)
    return "NVRTC was not found: registers of the machine code, spills and remarks of the assembler are "
           "unknown\n";
  std::string text;
  for (const auto& own : found->resources)
    text += fmt::format("{}: {} registers of a thread in machine code, {} bytes spilled\n", own.function,
                        own.registers, own.spilled_bytes());
  for (const auto& note : found->notes) text += "  " + note + "\n";
  return text;
}

}  // namespace tegula::shown
