// A kernel prepared for one target.
#pragma once
#include <memory>

#include "runtime/call/binding.hpp"
#include "tegula/runtime.hpp"

namespace tegula {

class Executable {
 public:
  virtual ~Executable() = default;
  // Runs all grids, once; calls may come from several threads at the same time. The executable clears what
  // the kernel declares `zero` (see clear_zeroed); the memory of workspaces is otherwise undefined.
  virtual void run(const Binding& binding) const = 0;
  // See Function::notes.
  virtual std::vector<std::string> notes() const { return {}; }
};

// The target that `automatic` stands for on this machine, if the kernel is not built in; other targets stand
// for themselves.
Target resolve(Target target);
// The place where a target gets its executor. `target` is not automatic.
std::unique_ptr<const Executable> make_executable(const std::shared_ptr<const Signature>& signature,
                                                  Target target);

// For `automatic`: the CPU if the kernel is built in or there is a compiler, else the interpreter.
struct Prepared {
  Target target;
  std::unique_ptr<const Executable> executable;
};
Prepared make_automatic(const std::shared_ptr<const Signature>& signature);

}  // namespace tegula
