// A kernel made ready for one target.
#pragma once
#include <memory>

#include "runtime/binding.hpp"
#include "tegula/runtime.hpp"

namespace tegula {

class Executable {
 public:
  virtual ~Executable() = default;
  // Runs all grids, once; calls may come from several threads at the same time. The executable clears what
  // the kernel declares `zero` (see clear_zeroed); the memory of workspaces is otherwise undefined.
  virtual void run(const Binding& binding) const = 0;
};

// The target that `automatic` stands for on this machine; other targets stand for themselves.
Target resolve(Target target);
// The place where a target gets its executor. `target` is not automatic.
std::unique_ptr<const Executable> make_executable(const std::shared_ptr<const Signature>& signature,
                                                  Target target);

}  // namespace tegula
