// What the compiler makes of a kernel for NVIDIA GPUs, as text to read. No GPU is needed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/cuda/shared_memory.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "schedule/schedule.hpp"
#include "tegula/lang.hpp"

namespace tegula::shown {

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

struct GridMemory {
  std::string name;  // kernel_grid
  std::int64_t bytes;
  std::vector<codegen::SharedInterval> intervals;
};

// The texts: the instruction of each product, and the registers that hold each fragment, as digits of the
// thread and register numbers (see src/layout/layout.hpp); what the producer and the consumers of each grid's
// blocks do, with all synchronisation; where tiles are in shared memory. Planning takes longer than writing,
// and is done once for all of these.
struct CudaTexts {
  std::string cuda, layout, schedule, memory, sizes;
  std::vector<std::string> notes;  // what fell back to a slower way
  std::vector<GridLayouts> layouts;
  std::vector<GridSchedule> schedules;
  std::vector<GridMemory> memories;

  // Threads, shared memory and registers of a block of each grid, and the notes.
  std::string resources() const;
};
CudaTexts cuda_texts(const lang::Kernel& kernel, const passes::CudaTarget& target);

}  // namespace tegula::shown
