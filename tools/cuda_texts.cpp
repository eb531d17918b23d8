#include "cuda_texts.hpp"

#include <fmt/format.h>

#include "codegen/cuda_program.hpp"
#include "ir/print.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/cuda_passes.hpp"

namespace tegula::tool {

namespace {

std::string_view name_of(passes::GemmInstruction instruction) {
  constexpr std::string_view names[] = {"fma", "mma.sync", "wgmma"};
  return names[static_cast<int>(instruction)];
}

std::string extents_text(const ir::Buffer& tile) {
  std::string text;
  for (auto& extent : tile.shape) text += (text.empty() ? "" : ", ") + ir::print(extent);
  return fmt::format("{}[{}]", tile.type.name(), text);
}

std::string gemm_line(const ir::Gemm& gemm, int threads, const passes::CudaTarget& target) {
  const auto plan = passes::plan_gemm(gemm, threads, target);
  return fmt::format("gemm({}, {}, {}): {}, {} x {}{}", gemm.a.buffer->name, gemm.b.buffer->name,
                     gemm.c.buffer->name, name_of(plan.instruction), plan.parts.along_m, plan.parts.along_n,
                     plan.a_in_registers ? ", A in registers" : "");
}

// 32-bit registers of a thread that hold the fragment; small types share them.
std::int64_t registers_of(const ir::Buffer& tile, const layout::Layout& layout) {
  return (layout.register_count() * tile.type.bytes() + 3) / 4;
}

}  // namespace

std::string cuda_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  return codegen::print_cuda(Signature(kernel.ir()), target).text;
}

std::vector<GridLayouts> grid_layouts(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  const passes::CudaPlan& plan = *program.plan;
  std::vector<GridLayouts> grids;
  for (std::size_t i = 0; i < plan.grids.size(); ++i) {
    const int threads = plan.computing_threads(i);
    const auto& layouts = plan.grids[i].layouts;
    GridLayouts own{plan.grids[i].function, threads, {}};
    ir::for_each_stmt(plan.computing(i), [&](const ir::Stmt& stmt) {
      if (auto* gemm = ir::as<ir::Gemm>(stmt)) own.lines.push_back({gemm_line(*gemm, threads, target), {}});
      auto* declared = ir::as<ir::Declare>(stmt);
      const auto found = declared ? layouts.fragments.find(declared->tile.get()) : layouts.fragments.end();
      if (found != layouts.fragments.end())
        own.lines.push_back(
            {fmt::format("{} {}", found->first->name, extents_text(*found->first)), found->second});
    });
    grids.push_back(std::move(own));
  }
  return grids;
}

std::string layout_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  std::string text;
  int number = 0;
  for (auto& grid : grid_layouts(kernel, target)) {
    text += fmt::format("{}, grid {}, {} threads\n", kernel.ir()->name, number++, grid.threads);
    for (auto& line : grid.lines)
      text += line.layout ? fmt::format("  {}: {}\n", line.words, line.layout->text())
                          : fmt::format("  {}\n", line.words);
  }
  return text;
}

std::vector<GridSchedule> grid_schedules(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  const passes::CudaPlan& plan = *program.plan;
  std::vector<GridSchedule> grids;
  for (std::size_t i = 0; i < plan.grids.size(); ++i)
    grids.push_back({plan.grids[i].function, plan.computing_threads(i), plan.grids[i].schedule});
  return grids;
}

std::string GridSchedule::without_roles() const {
  return fmt::format("{}: all {} threads of a block do the same", name, threads);
}

std::string schedule_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  std::string text;
  for (auto& grid : grid_schedules(kernel, target))
    text += grid.schedule ? schedule::print(*grid.schedule) : grid.without_roles() + "\n";
  return text;
}

namespace {

std::string sizes_of(const codegen::CudaProgram& program) {
  const passes::CudaPlan& plan = *program.plan;
  std::string text;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    std::int64_t registers = 0;
    for (auto& [tile, layout] : plan.grids[i].layouts.fragments) registers += registers_of(*tile, layout);
    text += fmt::format(
        "{}: {} threads, {} bytes of shared memory, {} registers of a thread for all fragments\n",
        program.kernels[i].function, program.kernels[i].threads, program.kernels[i].shared_bytes, registers);
  }
  return text;
}

}  // namespace

std::string sizes_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  return sizes_of(codegen::print_cuda(Signature(kernel.ir()), target));
}

std::string resources_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  std::string text = sizes_of(program);
  for (auto& note : passes::format(program.notes)) text += "  " + note + "\n";
  return text;
}

}  // namespace tegula::tool
