// Products of f32 in tf32: operands are rounded, or split into two numbers each.
#pragma once
#include <functional>

#include "ir/kernel.hpp"

namespace tegula::passes {

struct OperandRules {
  // Whether the product rounds such an operand where it is, so that no tile of rounded numbers is needed.
  std::function<bool(const ir::Gemm& product, const ir::View& operand)> reads;
  bool divides = true;   // tf32x3; otherwise that is left to products in f32, which are nearer
  bool along_k = false;  // the columns of B are rows of its rounded tile
};

// Operands of products with less than f32's precision become tiles of rounded numbers, and a product of
// operands divided into two numbers three products, of which the smallest come first.
ir::Kernel round_operands(const ir::Kernel& kernel, const OperandRules& rules);

// Where products are multiplied in f32.
ir::Kernel round_operands_for_cpu(const ir::Kernel& kernel);

}  // namespace tegula::passes
