// Options of the operators from what Python gives for them. Wrong values are a ValueError that names the
// choices.
#pragma once
#include <string>

#include "tegula/ops.hpp"

namespace tegula::python {

ops::Layout layout_of(const std::string& name);
ops::Activation activation_of(const std::string& name);
Target target_of(const std::string& name);

// "float32", "float16" or "bfloat16"
DType dtype_of_name(const std::string& name);

}  // namespace tegula::python
