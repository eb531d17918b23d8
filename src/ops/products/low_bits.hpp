// Decoding of low-bit numbers in programs and formulas.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "tegula/lang.hpp"
#include "tegula/tensor.hpp"

namespace tegula::ops {

// A scale of eight bits that are an exponent (e8m0): 2^(x − 127), and NaN for 255.
inline lang::Expr e8m0(const lang::Expr& x) {
  using namespace lang;
  // 2^−127 is no normal number: half of the least one.
  Expr bits = max(u32(x) << 23u, 0x400000u);
  return bitcast(select(x == 255, 0x7fc00000u, bits), f32);
}
inline double e8m0(double x) { return x == 255 ? NAN : std::exp2(x - 127); }

// An element of a tensor of scales, f32 or u8 with e8m0.
inline lang::Expr scale_of(const lang::Expr& element, DType type) {
  return type == u8 ? e8m0(element) : lang::Expr(element);
}

// All elements of such a tensor, for formulas.
inline std::vector<double> scales_of(const tegula::Tensor& scales) {
  std::vector<double> result = scales.values<double>();
  if (scales.dtype() == u8)
    for (double& x : result) x = e8m0(x);
  return result;
}

}  // namespace tegula::ops
