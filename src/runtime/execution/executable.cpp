#include "runtime/execution/executable.hpp"

#include <cstdio>

#include "cuda/executor.hpp"
#include "emulation/emulated_executor.hpp"
#include "interp/interpreter.hpp"
#include "runtime/execution/cpu_executor.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula {

Target resolve(Target target) {
  if (target == Target::automatic()) target = environment_target().value_or(target);
  if (!(target == Target::automatic())) return target;
  return host_compiler() ? Target::cpu() : Target::interpreter();
}

namespace {

void say_that_it_is_slow() {
  static const int once = std::fputs(
      "tegula: no C++ compiler was found, so kernels that are neither built in nor cached run in the "
      "interpreter, which is slow; install g++ or name a compiler in TEGULA_CXX\n",
      stderr);
  (void)once;
}

}  // namespace

Prepared make_automatic(const std::shared_ptr<const Signature>& signature) {
  if (auto executable = try_cpu_executor(signature)) return {Target::cpu(), std::move(executable)};
  say_that_it_is_slow();
  return {Target::interpreter(), make_executable(signature, Target::interpreter())};
}

std::unique_ptr<const Executable> make_executable(const std::shared_ptr<const Signature>& signature,
                                                  Target target) {
  if (target == Target::interpreter()) return std::make_unique<interp::Interpreter>(signature);
  if (target == Target::cpu()) return make_cpu_executor(signature);
  if (target == Target::emulated_sm90()) return emulation::make_emulated_executor(signature, {90});
  if (target == Target::emulated()) return emulation::make_emulated_executor(signature, {80});
  if (target == Target::cuda()) return cuda::make_executor(signature, 90);
  if (target == Target::cuda_sm80()) return cuda::make_executor(signature, 80);
  throw DeviceError("kernel '" + signature->kernel().name + "' cannot be compiled for target '" +
                    std::string(target.name()) + "' by this build; use the interpreter");
}

}  // namespace tegula
