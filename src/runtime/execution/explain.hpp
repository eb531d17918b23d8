// Explanations of single kernels, using what is known about the tensors of a call.
#pragma once
#include "tegula/explain.hpp"
#include "tegula/lang.hpp"

namespace tegula {

// `tensors` are those of a call, by the names that the kernel has for them; others have the best strides.
Explanation explain_call(const lang::Kernel& kernel, Target target,
                         const std::map<std::string, Tensor>& tensors);

}  // namespace tegula
