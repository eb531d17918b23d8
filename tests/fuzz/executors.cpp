#include "fuzz/executors.hpp"

#include "passes/passes.hpp"
#include "runtime/cpu_executor.hpp"
#include "tegula/error.hpp"

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

std::vector<Outcome> run_together(std::span<const Program> programs, const Compile& compile) {
  try {
    return run_compiled(programs, compile);
  } catch (const std::exception& e) {
    if (programs.size() == 1) return {{programs[0].clone_arguments(), e.what()}};
  }
  std::vector<Outcome> outcomes;  // one of them is to blame
  for (const Program& program : programs)
    outcomes.push_back(run_together(std::span(&program, 1), compile)[0]);
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
