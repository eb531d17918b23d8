#include "tegula/reduce.hpp"

#include <fmt/format.h>

#include <chrono>

#include "measure/arguments.hpp"
#include "reduce/reduction.hpp"
#include "runtime/execution/children.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char *fails_so = "fails", *is_right = "right";

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
}

// How a kernel ends: it fails, is right, or what ended the process.
std::string end_of(const lang::Kernel& kernel, const std::function<bool(const lang::Kernel&)>& fails,
                   const ReduceOptions& options) {
  const ChildResult result = run_child(milliseconds(options.seconds_of_one),
                                       [&]() -> std::string { return fails(kernel) ? fails_so : is_right; });
  return result.end.empty() ? result.output : result.end;
}

bool differs(const lang::Kernel& kernel, Target target, std::span<const Argument> args, double tolerance) {
  const measure::Arguments exact(args, Device::cpu()), own(args, Device::cpu());
  try {
    compile(kernel, Target::interpreter()).call_in_order(exact.values());
  } catch (const Error&) { return false; }  // another mistake, of the program
  try {
    compile(kernel, target).call_in_order(own.values());
  } catch (const Error&) { return true; }
  const auto expected = measure::outputs_of(kernel, exact.values()),
             found = measure::outputs_of(kernel, own.values());
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!all_close(found[i], expected[i], tolerance, tolerance)) return true;
  return false;
}

}  // namespace

lang::Kernel reduce(const lang::Kernel& kernel, const std::function<bool(const lang::Kernel&)>& fails,
                    ReduceOptions options) {
  const auto deadline = Clock::now() + milliseconds(options.seconds);
  const std::string end = end_of(kernel, fails, options);
  if (end == is_right)
    throw ArgumentError(fmt::format(
        "reduce: kernel '{}' does not fail; give the arguments with which it does", kernel.name()));
  ir::Kernel best = *kernel.ir();
  const auto first_failing = [&](std::span<const ir::Kernel> all) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < all.size() && Clock::now() < deadline; ++i)
      if (end_of(lang::Kernel(std::make_shared<const ir::Kernel>(all[i])), fails, options) == end) return i;
    return std::nullopt;
  };
  while (reduce_kernels::reduce_once(best, first_failing)) {}
  return lang::Kernel(std::make_shared<const ir::Kernel>(std::move(best)));
}

lang::Kernel reduce(const lang::Kernel& kernel, Target target, const std::vector<Argument>& args,
                    ReduceOptions options) {
  if (target.device() == DeviceKind::cuda)
    throw ArgumentError(
        "reduce: child processes of a process that uses a GPU cannot use it; give Target::emulated_sm90() or "
        "Target::cpu(), or a function that starts a process");
  return reduce(
      kernel, [&](const lang::Kernel& own) { return differs(own, target, args, options.tolerance); },
      options);
}

}  // namespace tegula
