#include "show/cuda_texts.hpp"

#include <fmt/format.h>

#include "codegen/cuda_program.hpp"
#include "ir/print.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/cuda_passes.hpp"

namespace tegula::shown {

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

codegen::CudaProgram printed(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  return codegen::print_cuda(Signature(kernel.ir()), target);
}

std::vector<GridLayouts> layouts_of(const codegen::CudaProgram& program, const passes::CudaTarget& target) {
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

std::string text_of(const std::vector<GridLayouts>& grids, const std::string& kernel) {
  std::string text;
  int number = 0;
  for (auto& grid : grids) {
    text += fmt::format("{}, grid {}, {} threads\n", kernel, number++, grid.threads);
    for (auto& line : grid.lines)
      text += line.layout ? fmt::format("  {}: {}\n", line.words, line.layout->text())
                          : fmt::format("  {}\n", line.words);
  }
  return text;
}

std::vector<GridSchedule> schedules_of(const codegen::CudaProgram& program) {
  const passes::CudaPlan& plan = *program.plan;
  std::vector<GridSchedule> grids;
  for (std::size_t i = 0; i < plan.grids.size(); ++i)
    grids.push_back({plan.grids[i].function, plan.computing_threads(i), plan.grids[i].schedule});
  return grids;
}

std::string text_of(const std::vector<GridSchedule>& grids) {
  std::string text;
  for (auto& grid : grids)
    text += grid.schedule ? schedule::print(*grid.schedule) : grid.without_roles() + "\n";
  return text;
}

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

std::vector<GridMemory> memories_of(const codegen::CudaProgram& program) {
  std::vector<GridMemory> grids;
  for (const auto& kernel : program.kernels)
    grids.push_back({kernel.function, static_cast<std::int64_t>(kernel.shared_bytes), kernel.shared});
  return grids;
}

std::string text_of(const std::vector<GridMemory>& grids) {
  std::string text;
  for (auto& grid : grids) {
    text += fmt::format("{}: {} bytes of shared memory\n", grid.name, grid.bytes);
    for (auto& own : grid.intervals)
      text += fmt::format("  {:>6} to {:>6}, turns {} to {}: {}\n", own.begin, own.end, own.from, own.until,
                          own.what);
  }
  return text;
}

}  // namespace

std::string CudaTexts::resources() const {
  std::string text = sizes;
  for (auto& note : notes) text += "  " + note + "\n";
  return text;
}

std::string GridSchedule::without_roles() const {
  return fmt::format("{}: all {} threads of a block do the same", name, threads);
}

std::vector<GridLayouts> grid_layouts(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  return layouts_of(printed(kernel, target), target);
}

std::vector<GridSchedule> grid_schedules(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  return schedules_of(printed(kernel, target));
}

CudaTexts cuda_texts(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  const codegen::CudaProgram program = printed(kernel, target);
  CudaTexts texts;
  texts.layouts = layouts_of(program, target);
  texts.schedules = schedules_of(program);
  texts.memories = memories_of(program);
  texts.cuda = program.text;
  texts.layout = text_of(texts.layouts, kernel.ir()->name);
  texts.schedule = text_of(texts.schedules);
  texts.memory = text_of(texts.memories);
  texts.sizes = sizes_of(program);
  texts.notes = passes::format(program.notes);
  return texts;
}

std::string cuda_text(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  return printed(kernel, target).text;
}

}  // namespace tegula::shown
