// The kernels that the operators run at the sizes which users have and benchmarks measure, and all that the
// compiler makes of them. A GPU runs what its text says: equal texts are equally fast.
#pragma once
#include <string>
#include <vector>

#include "ops/registry.hpp"
#include "ops/schema/table.hpp"

namespace golden {

// A call of an operator. Its tensors have shapes and no values: plans look at nothing else.
struct ShippedCall {
  std::string op;
  std::function<std::vector<tegula::lang::Kernel>(tegula::Target target)> kernels;
};

// One of the texts of a kernel; `name` is that of a file: the kernel's, the target's and the form's.
struct ShippedText {
  std::string name, text;
};

// Those that are chosen for operators of many plans.
std::vector<ShippedCall> chosen_calls();
// Those of one operator: the chosen ones, or else the first that its table has for measuring.
std::vector<ShippedCall> shipped_calls(const tegula::ops::OperatorSchema& schema);
// The texts of all their kernels, once each, in the order of their names: CUDA C++ for sm_90 and sm_80,
// layouts, schedule and resources for sm_90, and C++ for CPUs.
std::vector<ShippedText> shipped_texts(const std::vector<ShippedCall>& calls);

}  // namespace golden
