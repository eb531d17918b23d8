// The interpreter: it defines the language and finds errors of programs.
//
// It runs the whole call several times, with blocks and parallel iterations in different orders, on copies of
// what the kernel writes, and compares. The caller's tensors change only when everything succeeded.
#pragma once
#include <vector>

#include "interp/program.hpp"
#include "runtime/execution/executable.hpp"

namespace tegula::interp {

class Interpreter : public Executable {
 public:
  explicit Interpreter(const std::shared_ptr<const Signature>& signature);
  void run(const Binding& binding) const override;

 private:
  Program program_;
  // For each buffer of the signature, whether rounding may depend on the order of float sums.
  std::vector<bool> is_unordered_;
};

}  // namespace tegula::interp
