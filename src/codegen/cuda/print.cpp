#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda_program.hpp"
#include "passes/cuda/cuda_passes.hpp"

namespace tegula::codegen {

namespace {

// The parameter of every function: see cuda_program.hpp.
std::string call_struct(const Signature& signature, std::size_t maps) {
  std::size_t strides = 0;
  for (const ir::BufferPtr& buffer : signature.buffers()) strides += static_cast<std::size_t>(buffer->rank());
  std::string text = "struct Call {\n";
  const auto member = [&](const char* type, const char* name, std::size_t count) {
    if (count > 0) text += fmt::format("  {} {}[{}];\n", type, name, count);
  };
  member("void*", "tensor", signature.buffers().size());
  member("int64_t", "stride", strides);
  member("int64_t", "value", signature.variables().size());
  text += "  unsigned long long* status;\n  int* counters;\n";
  if (maps > 0) text += fmt::format("  tg::TensorMap map[{}];\n", maps);
  return text + "};\n";
}

}  // namespace

CudaProgram print_cuda(const Signature& signature, const passes::CudaTarget& target) {
  const passes::CudaPlan plan = passes::plan_for_cuda(signature.kernel(), target);
  CudaProgram program;
  std::string grids;
  for (std::size_t i = 0; i < plan.grids.size(); ++i)
    grids += fmt::format("\n{}", CudaGridPrinter(signature, plan, static_cast<int>(i), program).print());
  program.text = fmt::format("#include \"{}\"\n\n", target.has_wgmma() ? "hopper.cuh" : "kernel.cuh");
  program.text += call_struct(signature, program.maps.size());
  for (const auto& [name, text] : program.instructions) program.text += "\n" + text;
  program.text += grids;
  return program;
}

}  // namespace tegula::codegen
