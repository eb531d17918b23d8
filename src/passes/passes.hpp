// The lists of passes that run on a kernel before it is printed for a target.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ir/kernel.hpp"

namespace tegula::passes {

struct Pass {
  std::string_view name;
  std::string_view reason;
  std::function<ir::Kernel(const ir::Kernel&)> run;
};

std::span<const Pass> cpu_passes();

// A pass that has run, and what it was given and made of it, as text.
struct PassRun {
  std::string_view pass, reason;
  std::string kernel;  // its name
  std::string before, after;
};
using Observer = std::function<void(const PassRun&)>;

// Runs the passes in order; the contract of the IR is checked before the first and after each.
ir::Kernel run(std::span<const Pass> passes, const ir::Kernel& kernel, const Observer& observer = {});
// The same; TEGULA_DUMP writes down what every pass changed.
ir::Kernel for_cpu(const ir::Kernel& kernel);

ir::Kernel merge_clears(const ir::Kernel& kernel);
ir::Kernel lower_tile_ops(const ir::Kernel& kernel);

}  // namespace tegula::passes
