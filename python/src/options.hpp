// Options of the operators from what Python gives for them. Wrong values are a ValueError that names the
// choices.
#pragma once
#include <string_view>

#include "tegula/ops.hpp"

namespace tegula::python {

Target target_of(std::string_view name);

}  // namespace tegula::python
