// What programs are run on. The first executor is the reference; adding a target is one line in
// `executors()`.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/program.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::fuzz {

// The arguments after the call, or why there was none.
struct Outcome {
  std::vector<Given> arguments;
  std::string error;
};

struct Executor {
  std::string name;
  // Runs each program once.
  std::function<std::vector<Outcome>(std::span<const Program>)> run;
  // Programs that it must refuse are not run; null: there are none.
  std::function<bool(const Program&)> serves = {};
};

// Interprets the kernel after `rewrite`.
Executor interpreter(std::string name, const std::function<ir::Kernel(const ir::Kernel&)>& rewrite);
// Compiles the kernels of all programs together.
Executor cpu();
// The same for a GPU that is emulated.
Executor emulated(std::string name, const passes::CudaTarget& target);

// Compiles and calls kernel by kernel; tensors that are elsewhere are moved to the device and back.
Executor on_target(std::string name, Target target, Device device);

// Those of every machine.
const std::vector<Executor>& executors();
// Those that need a GPU, or much time.
const std::vector<Executor>& more_executors();

}  // namespace tegula::fuzz
