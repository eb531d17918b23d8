// What chunks of the gated delta rule have alone. With L the strictly lower part of β k kᵀ ∘ e^(g_i − g_j)
// and A = (I + L)⁻¹, w = A β e^g k and u = A β v: what a chunk writes is u − w · state.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

struct DeltaKernel {
  DType type = f32, beta = f32;
  DType result = f32;  // of dk
  int d = 64, d_v = 64, block = 64;
  bool gated = false, keep = false, packed = false;  // keep: the inverse is wanted
  auto fields() const {
    return std::tuple(type, labelled("beta", beta), labelled("to", result), labelled("d", d),
                      labelled("dv", d_v), labelled("b", block), labelled("gated", gated),
                      labelled("keep", keep), labelled("packed", packed));
  }
};

// k, v, beta [, sums] give w, u [, inverse], which has a row of 64 for each token and head.
lang::Kernel delta_factors_kernel(const DeltaKernel& c);
// k, v, beta, inverse, dw, du, dk_before [, sums] give dk, dv, dbeta, and add to dsums.
lang::Kernel delta_factor_gradients_kernel(const DeltaKernel& c);

// x becomes (I + x)⁻¹, of a strictly lower triangular tile: blocks of 16 on the diagonal by substitution,
// then neighbours by products.
void invert_lower(lang::Shared& x);

}  // namespace tegula::ops
