#include <fmt/format.h>

#include "cuda/ranges.hpp"
#include "passes/dump.hpp"
#include "runtime/execution/checked.hpp"
#include "runtime/execution/executable.hpp"
#include "runtime/execution/recorded.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"
#include "tegula/lang/kernel.hpp"
#include "tegula/runtime.hpp"

namespace tegula {

std::string_view Target::name() const {
  constexpr std::string_view names[] = {"automatic",      "interpreter", "cpu",       "emulated",
                                        "emulated:sm_90", "cuda",        "cuda:sm_80"};
  return names[static_cast<int>(kind_)];
}

std::optional<Target> Target::named(std::string_view name) {
  constexpr std::pair<std::string_view, Target> names[] = {
      {"automatic", automatic()}, {"interpreter", interpreter()},     {"cpu", cpu()},
      {"emulated", emulated()},   {"emulated_sm90", emulated_sm90()}, {"cuda", cuda()},
      {"cuda_sm80", cuda_sm80()}};
  for (const auto& [own, target] : names) {
    if (own == name) return target;
  }
  return std::nullopt;
}

DeviceKind Target::device() const {
  return kind_ == Kind::cuda || kind_ == Kind::cuda_sm80 ? DeviceKind::cuda : DeviceKind::cpu;
}

struct Function::Compiled {
  std::shared_ptr<const Signature> signature;
  Target target;
  std::unique_ptr<const Executable> executable;
  std::vector<std::string> notes;
};

namespace {

template <class Compiled>
void run(const Compiled& compiled, const std::optional<Stream>& stream, const Binding& binding) {
  RecordedCalls::add(compiled.signature, binding);
  if (RecordedCalls::nothing_runs()) return;
  const cuda::Range range(compiled.signature->kernel().name);
  if (!stream) return compiled.executable->run(binding);
  if (!(stream->device() == binding.device)) {
    throw ArgumentError(fmt::format("kernel '{}': the stream belongs to {}, but the tensors are on {}",
                                    compiled.signature->kernel().name, stream->device().name(),
                                    binding.device.name()));
  }
  const StreamScope scope(*stream);
  compiled.executable->run(binding);
}

}  // namespace

void Function::call_in_order(std::span<const Argument> args) const {
  run(*compiled_, stream_, compiled_->signature->bind(args));
}

void Function::call(std::span<const NamedArgument> args) const {
  run(*compiled_, stream_, compiled_->signature->bind(args));
}

Function Function::on(const Stream& stream) const {
  if (compiled_->target.device() != DeviceKind::cuda) {
    throw ArgumentError(
        fmt::format("kernel '{}' is compiled for target '{}', which has no streams; compile it "
                    "for Target::cuda()",
                    name(), compiled_->target.name()));
  }
  Function result = *this;
  result.stream_ = stream;
  return result;
}

std::size_t Function::workspace_bytes_in_order(std::span<const Argument> args) const {
  return compiled_->signature->bind_only(args).workspace_bytes;
}

const std::string& Function::name() const { return compiled_->signature->kernel().name; }
Target Function::target() const { return compiled_->target; }
const std::vector<std::string>& Function::notes() const { return compiled_->notes; }

Function compile(const std::shared_ptr<const ir::Kernel>& kernel, Target target) {
  internal_assert(kernel != nullptr, "there is no kernel to compile");
  if (target == Target::automatic()) target = environment_target().value_or(target);
  auto signature = std::make_shared<const Signature>(kernel, target.device());
  if (RecordedCalls::nothing_runs())
    return Function(
        std::make_shared<const Function::Compiled>(Function::Compiled{std::move(signature), target, {}, {}}));
  Prepared made = target == Target::automatic() ? make_automatic(signature)
                                                : Prepared{target, make_executable(signature, target)};
  made.executable = checked_if_asked(signature, made.target, std::move(made.executable));
  std::vector<std::string> notes = made.executable->notes();
  passes::dump_notes(kernel->name, std::string(made.target.name()), notes);
  return Function(std::make_shared<const Function::Compiled>(
      Function::Compiled{std::move(signature), made.target, std::move(made.executable), std::move(notes)}));
}

Function compile(const lang::Kernel& kernel, Target target) { return compile(kernel.ir(), target); }

}  // namespace tegula
