#include "fuzz/executors.hpp"

#include "emulation/emulated_executor.hpp"
#include "ir/visit.hpp"
#include "passes/passes.hpp"
#include "runtime/execution/cpu_executor.hpp"
#include "tegula/error.hpp"
#include "tegula/runtime.hpp"

namespace tegula::fuzz {
namespace {

std::vector<Argument> list_of(const std::vector<Given>& arguments) {
  std::vector<Argument> list;
  for (const Given& argument : arguments) list.push_back(argument.argument());
  return list;
}

// Calls `f`; what it throws is the outcome.
template <class F>
Outcome attempt(const Program& program, const F& f) {
  Outcome outcome{program.clone_arguments(), ""};
  try {
    f(outcome.arguments);
  } catch (const std::exception& e) { outcome.error = e.what(); }
  return outcome;
}

// Makes the executables of several signatures.
using Compile = std::function<std::vector<std::unique_ptr<const Executable>>(
    std::span<const std::shared_ptr<const Signature>>)>;

std::vector<Outcome> run_compiled(std::span<const Program> programs, const Compile& compile) {
  std::vector<std::shared_ptr<const Signature>> signatures;
  for (const Program& program : programs)
    signatures.push_back(std::make_shared<const Signature>(program.kernel));
  const auto executables = compile(signatures);
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    outcomes.push_back(attempt(programs[i], [&](const auto& arguments) {
      executables[i]->run(signatures[i]->bind(list_of(arguments)));
    }));
  }
  return outcomes;
}

// A compiler that fails says it of all texts that it was given: then of each half, until one is to blame.
std::vector<Outcome> run_together(std::span<const Program> programs, const Compile& compile) {
  try {
    return run_compiled(programs, compile);
  } catch (const std::exception& e) {
    if (programs.size() == 1) return {{programs[0].clone_arguments(), e.what()}};
  }
  std::vector<Outcome> outcomes = run_together(programs.first(programs.size() / 2), compile);
  for (Outcome& outcome : run_together(programs.subspan(programs.size() / 2), compile))
    outcomes.push_back(std::move(outcome));
  return outcomes;
}

}  // namespace

Executor interpreter(std::string name, const std::function<ir::Kernel(const ir::Kernel&)>& rewrite) {
  return {std::move(name), [rewrite](std::span<const Program> programs) {
            std::vector<Outcome> outcomes;
            for (const Program& program : programs) {
              outcomes.push_back(attempt(program, [&](const auto& arguments) {
                auto kernel = std::make_shared<const ir::Kernel>(rewrite(*program.kernel));
                compile(std::shared_ptr<const ir::Kernel>(kernel), Target::interpreter())
                    .call_in_order(list_of(arguments));
              }));
            }
            return outcomes;
          }};
}

Executor cpu() {
  return {"cpu",
          [](std::span<const Program> programs) { return run_together(programs, make_cpu_executors); }};
}

namespace {

// The argument on the device, in the same layout; `base` keeps and brings back its memory.
Argument moved(const Given& given, const Device& device, Tensor& base) {
  if (!given.is_tensor) return given.argument();
  base = given.base.to(device);
  TensorRef there = given.tensor.ref();
  const auto offset = static_cast<const char*>(there.data) - static_cast<const char*>(given.base.ref().data);
  there.data = static_cast<char*>(base.ref().data) + offset;
  there.device = device;
  return there;
}

void call_on(const Device& device, const Target& target, const Program& program,
             const std::vector<Given>& given) {
  std::vector<Tensor> bases(given.size());
  std::vector<Argument> list;
  for (std::size_t i = 0; i < given.size(); ++i) list.push_back(moved(given[i], device, bases[i]));
  compile(program.kernel, target).call_in_order(list);
  if (!device.is_cpu()) synchronize();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_tensor) copy_elements(bases[i].ref(), given[i].base.ref());
  }
}

// GPUs take orders only with the promise that they are consecutive.
bool is_for_gpus(const Program& program) {
  bool result = true;
  ir::for_each_stmt(*program.kernel, [&](const ir::Stmt& s) {
    const auto* n = ir::as<ir::Accumulate>(s);
    result &= !n || !n->order || n->turn;
  });
  return result;
}

}  // namespace

Executor emulated(std::string name, const passes::CudaTarget& target) {
  const Compile compile = [target](std::span<const std::shared_ptr<const Signature>> signatures) {
    return emulation::make_emulated_executors(signatures, target);
  };
  return {std::move(name),
          [compile](std::span<const Program> programs) { return run_together(programs, compile); },
          is_for_gpus};
}

Executor on_target(std::string name, Target target, Device device) {
  return {std::move(name),
          [target, device](std::span<const Program> programs) {
            std::vector<Outcome> outcomes;
            for (const Program& program : programs) {
              outcomes.push_back(attempt(
                  program, [&](const auto& arguments) { call_on(device, target, program, arguments); }));
            }
            return outcomes;
          },
          is_for_gpus};
}

const std::vector<Executor>& more_executors() {
  static const std::vector<Executor> list{
      emulated("emulated", {80}),
      emulated("emulated_sm90", {90}),
      on_target("cuda", Target::cuda(), Device::cuda()),
      on_target("cuda_sm80", Target::cuda_sm80(), Device::cuda()),
  };
  return list;
}

const std::vector<Executor>& executors() {
  static const std::vector<Executor> list{
      interpreter("interpreter", [](const ir::Kernel& kernel) { return kernel; }),
      interpreter("passes",
                  [](const ir::Kernel& kernel) { return passes::run(passes::cpu_passes(), kernel); }),
      cpu(),
  };
  return list;
}

}  // namespace tegula::fuzz
