// How a kernel, or a call of an operator, is executed on a target, and where it falls back to slower code.
// Nothing runs, and a GPU can be asked about without having one.
//
//   for (auto& kernel : explain("attention_backward", {{"q", q}, …}, {{"causal", "true"}}, Target::cuda()))
//     std::puts(kernel.text().c_str());
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct Explanation {
  std::string kernel;  // its name; that of an operator's kernel contains types, tiles and everything else
                       // that the instance fixes
  std::string target;  // cpu, cuda, …
  // For each grid: whether its threads have roles, how tiles are loaded, the instructions of its products.
  std::vector<std::string> ways;
  std::vector<std::string> notes;  // as Function::notes(), except for what only compilation reveals

  // The name, and a line per way and note.
  std::string text() const;
};

// Explains what compile(kernel, target) would make.
Explanation explain(const lang::Kernel& kernel, Target target = Target::automatic());

// Explains the kernels of a call of the operator, in order. Operators, inputs and options have the names that
// `tegula list` prints. Tensors may be on the host for any target; their strides matter, their elements do
// not. Throws the ArgumentError that the call would throw.
std::vector<Explanation> explain(const std::string& op, const std::map<std::string, Tensor>& inputs,
                                 const std::map<std::string, std::string>& options = {},
                                 Target target = Target::automatic());

}  // namespace tegula
TEGULA_API_END
