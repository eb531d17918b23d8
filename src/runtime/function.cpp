#include "runtime/executable.hpp"
#include "tegula/error.hpp"
#include "tegula/lang/kernel.hpp"
#include "tegula/runtime.hpp"

namespace tegula {

std::string_view Target::name() const {
  constexpr std::string_view names[] = {"automatic", "interpreter", "cpu", "emulated"};
  return names[static_cast<int>(kind_)];
}

struct Function::Compiled {
  std::shared_ptr<const Signature> signature;
  Target target;
  std::unique_ptr<const Executable> executable;
};

void Function::call_in_order(std::span<const Argument> args) const {
  compiled_->executable->run(compiled_->signature->bind(args));
}

void Function::call(std::span<const NamedArgument> args) const {
  compiled_->executable->run(compiled_->signature->bind(args));
}

std::size_t Function::workspace_bytes_in_order(std::span<const Argument> args) const {
  return compiled_->signature->bind_only(args).workspace_bytes;
}

const std::string& Function::name() const { return compiled_->signature->kernel().name; }
Target Function::target() const { return compiled_->target; }

Function compile(const std::shared_ptr<const ir::Kernel>& kernel, Target target) {
  internal_assert(kernel != nullptr, "there is no kernel to compile");
  auto signature = std::make_shared<const Signature>(kernel);
  const Target chosen = resolve(target);
  std::unique_ptr<const Executable> executable = make_executable(signature, chosen);
  return Function(std::make_shared<const Function::Compiled>(
      Function::Compiled{std::move(signature), chosen, std::move(executable)}));
}

Function compile(const lang::Kernel& kernel, Target target) { return compile(kernel.ir(), target); }

}  // namespace tegula
