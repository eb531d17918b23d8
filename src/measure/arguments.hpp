// The arguments of a call for several kernels with the same parameters, and their outputs.
#pragma once
#include <span>
#include <vector>

#include "ir/kernel.hpp"
#include "tegula/lang/kernel.hpp"
#include "tegula/runtime.hpp"

namespace tegula::measure {

// Copies of the tensors, numbers as they are.
class Arguments {
 public:
  Arguments(std::span<const Argument> args, const Device& device) {
    for (const Argument& own : args) {
      const TensorRef* tensor = own.tensor();
      if (!tensor) {
        values_.push_back(own);
        continue;
      }
      const Tensor copy = Tensor::adopt(*tensor, nullptr).to(device);
      const bool same = copy.ref().data == tensor->data;
      tensors_.push_back(same ? copy.clone() : copy);
      values_.emplace_back(tensors_.back());
    }
  }
  const std::vector<Argument>& values() const { return values_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<Argument> values_;
};

// Those that a kernel writes, on the host.
inline std::vector<Tensor> outputs_of(const lang::Kernel& kernel, std::span<const Argument> args) {
  std::vector<Tensor> outputs;
  const auto& parameters = kernel.ir()->parameters;
  for (std::size_t i = 0; i < parameters.size() && i < args.size(); ++i) {
    if (parameters[i].tensor && parameters[i].tensor->role != ir::Role::input && args[i].tensor())
      outputs.push_back(Tensor::adopt(*args[i].tensor(), nullptr).to(Device::cpu()).clone());
  }
  return outputs;
}

}  // namespace tegula::measure
