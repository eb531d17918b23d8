// A random program: a kernel, what its places may hold, and the arguments of one call.
#pragma once
#include <unordered_map>
#include <vector>

#include "fuzz/nature.hpp"
#include "ir/kernel.hpp"
#include "tegula/runtime.hpp"

namespace tegula::fuzz {

// What the elements of each buffer, and the values of each variable, may be.
struct Contracts {
  std::unordered_map<const ir::Buffer*, Nature> buffers;
  std::unordered_map<const ir::Variable*, Nature> variables;
};

// An argument as the call gets it: a tensor, or a number.
struct Given {
  Tensor tensor;
  Tensor base;     // of which `tensor` is a view
  int layout = 0;  // which view
  Argument::Number number = false;
  bool is_tensor = false;

  Argument argument() const;
  // With its own elements, in the same layout.
  Given clone() const;
};

struct Program {
  std::uint64_t seed = 0;
  ir::KernelPtr kernel;
  Contracts contracts;
  std::vector<Given> arguments;  // in the order of the kernel's parameters

  std::vector<Given> clone_arguments() const;
};

// The rule by which executors may disagree about an element that nobody promised, with its statement; empty
// if there is none.
std::string broken_contract(const Program& program);

// The kernel with the values and layouts of its arguments.
std::string print(const Program& program);

}  // namespace tegula::fuzz
