// How a kernel, or a call of an operator, is executed on a target, and where it falls back to a slower way.
// Nothing runs, and no GPU is needed to ask about one.
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
  std::string
      kernel;  // its name; of an operator's it states types, tiles and all else that the instance fixes
  std::string target;  // cpu, cuda, …
  // Of each grid: whether its threads have roles, what brings tiles, the instructions of its products.
  std::vector<std::string> ways;
  std::vector<std::string> notes;  // as Function::notes(), but for what only compiling tells

  // The name, and a line for each way and note.
  std::string text() const;
};

// As compile(kernel, target) would make it.
Explanation explain(const lang::Kernel& kernel, Target target = Target::automatic());

// The kernels of a call of the operator, in their order: operators, inputs and options have the names that
// `tegula list` prints. Tensors may lie on the host whatever the target; their strides count, their elements
// do not. An ArgumentError as the call would throw.
std::vector<Explanation> explain(const std::string& op, const std::map<std::string, Tensor>& inputs,
                                 const std::map<std::string, std::string>& options = {},
                                 Target target = Target::automatic());

}  // namespace tegula
TEGULA_API_END
