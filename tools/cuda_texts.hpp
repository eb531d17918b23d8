// What the compiler makes of a kernel for NVIDIA GPUs, as text to read. No GPU is needed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "passes/cuda/plan_gemms.hpp"
#include "schedule/schedule.hpp"
#include "tegula/lang.hpp"

namespace tegula::tool {

// A product and its instruction, or a fragment and where it lives.
struct LayoutLine {
  std::string words;
  std::optional<layout::Layout> layout;  // of a fragment
};

struct GridLayouts {
  std::string name;  // kernel_grid
  int threads;
  std::vector<LayoutLine> lines;
};

struct GridSchedule {
  std::string name;  // kernel_grid
  int threads;
  std::optional<schedule::Schedule> schedule;  // none: no roles

  std::string without_roles() const;
};

std::vector<GridLayouts> grid_layouts(const lang::Kernel& kernel, const passes::CudaTarget& target);
std::vector<GridSchedule> grid_schedules(const lang::Kernel& kernel, const passes::CudaTarget& target);

// The CUDA C++ that is compiled.
std::string cuda_text(const lang::Kernel& kernel, const passes::CudaTarget& target);
// The instruction of each product, and the registers that hold each fragment, as digits of the thread and
// register numbers (see src/layout/layout.hpp).
std::string layout_text(const lang::Kernel& kernel, const passes::CudaTarget& target);
// What the producer and the consumers of each grid's blocks do, with all synchronisation; how many counters,
// rings and slots they have.
std::string schedule_text(const lang::Kernel& kernel, const passes::CudaTarget& target);
// Threads, shared memory and registers of a block of each grid, and what fell back to a slower way.
std::string resources_text(const lang::Kernel& kernel, const passes::CudaTarget& target);

// All of these without the notes: planning takes longer than writing, and is done once for them.
struct CudaTexts {
  std::string cuda, layout, schedule, sizes;
};
CudaTexts cuda_texts(const lang::Kernel& kernel, const passes::CudaTarget& target);

}  // namespace tegula::tool
