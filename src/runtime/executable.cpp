#include "runtime/executable.hpp"

#include "interp/interpreter.hpp"
#include "runtime/cpu_executor.hpp"
#include "tegula/error.hpp"

namespace tegula {

Target resolve(Target target) { return target == Target::automatic() ? Target::interpreter() : target; }

std::unique_ptr<const Executable> make_executable(const std::shared_ptr<const Signature>& signature,
                                                  Target target) {
  if (target == Target::interpreter()) return std::make_unique<interp::Interpreter>(signature);
  if (target == Target::cpu()) return make_cpu_executor(signature);
  throw DeviceError("kernel '" + signature->kernel().name + "' cannot be compiled for target '" +
                    std::string(target.name()) + "' by this build; use the interpreter");
}

}  // namespace tegula
