#include "ops/common/functions.hpp"

#include <map>
#include <mutex>

#include "runtime/environment.hpp"

namespace tegula::ops {

Target target_for(Target target, const Device& device) {
  if (target != Target::automatic()) return target;
  return environment_target().value_or(device.is_cpu() ? target : Target::cuda());
}

DType multiplied_type(DType type, bool on_gpu) { return on_gpu && type.bits() == 16 ? type : f32; }

Function compiled(const std::string& name, Target target, const std::function<lang::Kernel()>& build) {
  // Never destroyed: see thread_pool().
  static auto& mutex = *new std::mutex;
  static auto& functions = *new std::map<std::pair<std::string, Target::Kind>, Function>;
  const auto key = std::make_pair(name, target.kind());
  {
    std::lock_guard lock(mutex);
    auto found = functions.find(key);
    if (found != functions.end()) return found->second;
  }
  // Compiled without the lock, so that different kernels compile at the same time.
  Function function = compile(build(), target);
  std::lock_guard lock(mutex);
  return functions.emplace(key, function).first->second;
}

}  // namespace tegula::ops
