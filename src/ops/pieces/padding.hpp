// Copies of matrices that suit the copy engine.
#pragma once
#include <string>

#include "tegula/lang.hpp"

namespace tegula::ops {

// A matrix, or a batch of them, whose rows begin at multiples of 16 bytes, as the copy engine takes them: a
// copy in a workspace of that name, whose rows end with zeros.
lang::Tensor padded(const std::string& name, const lang::Tensor& matrix);

}  // namespace tegula::ops
