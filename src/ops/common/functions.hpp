// Compiled kernels of the operators, kept by name and target: the name of an instance states all that it
// fixes.
#pragma once
#include <functional>
#include <string>

#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::ops {

// The target; what `automatic` stands for where the tensors of a call lie.
Target target_for(Target target, const Device& device);

Function compiled(const std::string& name, Target target, const std::function<lang::Kernel()>& build);

template <class Instance>
Function compiled(const Instance& instance, Target target, lang::Kernel (*build)(const Instance&)) {
  return compiled(instance.name(), target, [&] { return build(instance); });
}

}  // namespace tegula::ops
