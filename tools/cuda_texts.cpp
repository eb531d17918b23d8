#include "cuda_texts.hpp"

#include <fmt/format.h>

#include "codegen/cuda_program.hpp"
#include "ir/print.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/order_loads.hpp"

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
  const ir::Kernel lowered = codegen::print_cuda(Signature(kernel.ir()), target).lowered;
  std::vector<GridLayouts> grids;
  for (auto& grid : lowered.grids) {
    const int threads = grid.hints.threads;
    const auto layouts = passes::infer_layouts(grid.body, threads, target);
    GridLayouts own{fmt::format("{}_{}", lowered.name, grids.size()), threads, {}};
    ir::for_each_stmt(grid.body, [&](const ir::Stmt& stmt) {
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
  const ir::Kernel lowered = codegen::print_cuda(Signature(kernel.ir()), target).lowered;
  std::vector<GridSchedule> grids;
  for (auto& grid : lowered.grids) {
    GridSchedule own{fmt::format("{}_{}", lowered.name, grids.size()), grid.hints.threads, {}};
    if (const auto planned = passes::specialize_roles(grid, target)) {
      const auto program = passes::delay_products(*planned, target);
      own.schedule =
          passes::build_schedule(own.name, passes::order_loads(*planned, program), program, target);
    }
    grids.push_back(std::move(own));
  }
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

std::string resources_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  const ir::Kernel& lowered = program.lowered;
  std::string text;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    auto& grid = lowered.grids[i];
    std::int64_t registers = 0;
    for (auto& [tile, layout] : passes::infer_layouts(grid.body, grid.hints.threads, target).fragments)
      registers += registers_of(*tile, layout);
    text += fmt::format(
        "{}: {} threads, {} bytes of shared memory, {} registers of a thread for all fragments\n",
        program.kernels[i].function, program.kernels[i].threads, program.kernels[i].shared_bytes, registers);
  }
  for (auto& note : program.notes) text += "  " + note + "\n";
  return text;
}

}  // namespace tegula::tool
