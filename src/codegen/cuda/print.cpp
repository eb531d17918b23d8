#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda_program.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "passes/cuda/registers.hpp"

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

// What the user may want to know of a grid's plan.
void add_notes(const ir::Grid& grid, const CudaGridPrinter& printed, const passes::CudaTarget& target,
               std::vector<std::string>& notes) {
  if (const std::string note = passes::note_on_registers(grid, target); !note.empty()) notes.push_back(note);
  const int asked = grid.hints.blocks_per_processor;
  if (asked > 0 && asked != printed.blocks_per_processor())
    notes.push_back(
        fmt::format("{}: .blocks_per_processor = {} is not followed, registers and shared memory are "
                    "divided among {}",
                    short_location(grid.at), asked, printed.blocks_per_processor()));
}

// Nothing where a grid's plan takes more shared memory than there is; then `others` says more.
std::optional<CudaProgram> print_planned(const Signature& signature, const passes::CudaTarget& target,
                                         passes::OtherBytes& others) {
  CudaProgram program;
  program.lowered = passes::for_cuda(signature.kernel(), target, others);
  const std::vector<passes::GridWait> waits = passes::plan_grid_waits(program.lowered);
  std::string grids;
  bool fits = true;
  for (std::size_t i = 0; i < program.lowered.grids.size(); ++i) {
    const ir::Grid& grid = program.lowered.grids[i];
    CudaGridPrinter printer(signature, target, waits, static_cast<int>(i), program);
    grids += "\n" + printer.print(grid);
    add_notes(grid, printer, target, program.notes);
    const std::int64_t missing = printer.missing_shared_bytes(grid);
    if (missing > 0) others[i] = std::max(printer.other_shared_bytes(), others[i] + missing);
    fits &= missing == 0;
  }
  if (!fits) return std::nullopt;
  program.text = fmt::format("#include \"{}\"\n\n", target.has_wgmma() ? "hopper.cuh" : "kernel.cuh");
  program.text += call_struct(signature, program.maps.size());
  for (const auto& [name, text] : program.instructions) program.text += "\n" + text;
  program.text += grids;
  return program;
}

}  // namespace

// Where a plan by estimates takes too much, the next one knows what else lies in shared memory: no hint and
// nothing that only comes early decides whether a kernel is accepted.
CudaProgram print_cuda(const Signature& signature, const passes::CudaTarget& target) {
  passes::OtherBytes others(signature.kernel().grids.size(), -1);
  for (;;) {
    if (auto program = print_planned(signature, target, others)) return std::move(*program);
  }
}

}  // namespace tegula::codegen
