// Sums of f16 that stay in words of two, in which tensor cores add to them. Others are added up in registers
// of f32, which are rounded after the product.
#pragma once
#include "passes/cuda/fragment_forms.hpp"

namespace tegula::passes {

// A loop that gives all elements of a fragment one value.
struct Filling {
  ir::BufferPtr to;
  ir::Expr value;
};
std::optional<Filling> filling(const ir::Stmt& s);

// Those in the registers of the instructions that add to them, which the program only fills and reads by
// loops over all elements.
Buffers sums_in_words(const ir::Body& body, const Computing& own);

}  // namespace tegula::passes
