// Operands of products in tf32, as tensor cores read them.
#pragma once
#include <string>

#include "tegula/lang.hpp"

namespace tegula::ops {

// A copy of the matrices [batch, rows, k] (transposed: [batch, k, rows]) of f32 in a workspace of that name,
// [terms, batch, rows, k]: term 0 holds the nearest numbers of tf32, term 1, if there are two, what is left
// of each element, in tf32, too. Rows begin at multiples of 16 bytes and end with zeros.
lang::Tensor as_tf32(const std::string& name, const lang::Tensor& matrix, bool transposed, int terms);

}  // namespace tegula::ops
