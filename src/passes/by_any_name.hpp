// Tensors that may be in the same memory.
#pragma once
#include <unordered_set>

#include "ir/kernel.hpp"

namespace tegula::passes {

using Tensors = std::unordered_set<const ir::Buffer*>;

// With all that `may_alias` names beside them.
Tensors by_any_name(Tensors tensors, const ir::Kernel& kernel);

}  // namespace tegula::passes
