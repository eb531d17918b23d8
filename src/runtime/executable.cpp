#include "runtime/executable.hpp"

#include <cstdio>

#include "cuda/executor.hpp"
#include "emulation/emulated_executor.hpp"
#include "interp/interpreter.hpp"
#include "runtime/cpu_executor.hpp"
#include "runtime/host_compiler.hpp"
#include "tegula/error.hpp"

namespace tegula {

Target resolve(Target target) {
  if (!(target == Target::automatic())) return target;
  static const bool compiles = [] {
    const bool found = host_compiler() != nullptr;
    if (!found)
      std::fputs(
          "tegula: no C++ compiler was found, so kernels run in the interpreter, which is slow; install "
          "g++ or name a compiler in TEGULA_CXX\n",
          stderr);
    return found;
  }();
  return compiles ? Target::cpu() : Target::interpreter();
}

std::unique_ptr<const Executable> make_executable(const std::shared_ptr<const Signature>& signature,
                                                  Target target) {
  if (target == Target::interpreter()) return std::make_unique<interp::Interpreter>(signature);
  if (target == Target::cpu()) return make_cpu_executor(signature);
  if (target == Target::emulated()) return emulation::make_emulated_executor(signature, {80});
  if (target == Target::cuda()) return cuda::make_executor(signature, 90);
  if (target == Target::cuda_sm80()) return cuda::make_executor(signature, 80);
  throw DeviceError("kernel '" + signature->kernel().name + "' cannot be compiled for target '" +
                    std::string(target.name()) + "' by this build; use the interpreter");
}

}  // namespace tegula
