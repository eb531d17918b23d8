// The kernels that the operators run at the sizes which users have and benchmarks measure, and all that the
// compiler makes of them. A GPU runs what its text says: equal texts are equally fast.
#pragma once
#include <string>
#include <vector>

#include "ops/registry.hpp"

namespace golden {

// A call of an operator. Its tensors have shapes and no values: plans look at nothing else.
struct ShippedCall {
  const tegula::ops::Operator* op;
  tegula::ops::Tensors inputs;
  tegula::ops::OptionTexts options;
};

// One of the texts of a kernel; `name` is that of a file: the kernel's, the target's and the form's.
struct ShippedText {
  std::string name, text;
};

std::vector<ShippedCall> shipped_calls();
// Of all their kernels, once each, in the order of their names: CUDA C++ for sm_90 and sm_80, layouts,
// schedule and resources for sm_90, and C++ for CPUs.
std::vector<ShippedText> shipped_texts(const std::vector<ShippedCall>& calls);

}  // namespace golden
