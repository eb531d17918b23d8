#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/timeline.hpp"
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

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Nothing where a grid's plan takes more shared memory than there is, or spreads a block whose threads
// exchange more than sums; then `shown` says more.
std::optional<CudaProgram> print_planned(const Signature& signature, const passes::CudaTarget& target,
                                         passes::ShownOfGrids& shown) {
  const auto plan =
      std::make_shared<const passes::CudaPlan>(passes::plan_for_cuda(signature.kernel(), target, shown));
  CudaProgram program;
  std::string grids;
  bool fits = true;
  for (std::size_t i = 0; i < plan->grids.size(); ++i) {
    const ir::Grid& grid = plan->kernel.grids[i];
    CudaGridPrinter printer(signature, *plan, static_cast<int>(i), program);
    grids += "\n" + printer.print();
    if (const passes::Reason& reason = printer.not_spread(); !reason.why.empty()) {
      shown[i].not_spread = reason, fits = false;
      continue;
    }
    const std::int64_t missing = printer.missing_shared_bytes(grid);
    if (missing > 0)
      shown[i].other_bytes = std::max(printer.other_shared_bytes(), shown[i].other_bytes + missing);
    fits &= missing == 0;
  }
  if (!fits) return std::nullopt;
  program.plan = plan;
  if (timeline_of(signature.kernel()))
    replace_all(grids, events_key_word, std::to_string(program.events_key()));
  program.text = fmt::format("#include \"{}\"\n\n", target.has_wgmma() ? "hopper.cuh" : "kernel.cuh");
  program.text += call_struct(signature, program.maps.size());
  for (const auto& [name, text] : program.instructions) program.text += "\n" + text;
  program.text += grids;
  return program;
}

}  // namespace

std::int64_t CudaProgram::events_key() const {
  std::uint64_t key = 14695981039346656037u;
  for (const Event& e : events)
    for (const char c : e.words + short_location(e.at))
      key = (key ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return static_cast<std::int64_t>((key ^ key >> 32) & 0x7fff);
}

// Where a plan by estimates takes too much, the next one knows what else is in shared memory: no hint and
// nothing that only comes early decides whether a kernel is accepted.
CudaProgram print_cuda(const Signature& signature, const passes::CudaTarget& target) {
  passes::ShownOfGrids shown(signature.kernel().grids.size());
  for (;;) {
    if (auto program = print_planned(signature, target, shown)) return std::move(*program);
  }
}

}  // namespace tegula::codegen
