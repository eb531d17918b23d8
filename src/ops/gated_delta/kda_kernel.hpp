// The programs of the gated delta rule with a decay for each feature, over chunks of a head.
//
// With G the gates summed from a chunk's first token on, L the strictly lower part of (k e^G) (k e^−G)ᵀ and
// A = (I + β L)⁻¹, a chunk writes u = A r of r = β (v − (k e^G) · state).
#pragma once
#include "ops/linear/sequences.hpp"

namespace tegula::ops {

struct KdaKernel {
  DType type = f32, beta = f32;
  DType result = f32;                // of dq and dk
  int d = 64, d_v = 64, block = 64;  // features, and columns of values that a block has
  bool keep = false;                 // the states and what is written are wanted, not results
  bool grouped = false;              // of gradients: heads share q and k
  bool first = false, last = false, packed = false;
  auto fields() const {
    return std::tuple(type, labelled("beta", beta), labelled("to", result), labelled("d", d),
                      labelled("dv", d_v), labelled("b", block), labelled("keep", keep),
                      labelled("grouped", grouped), labelled("first", first), labelled("last", last),
                      labelled("packed", packed));
  }
  static constexpr int rows = 16;  // of a chunk: features fade by e^(16 · least_gate) at most, which f32 has
  int features() const { return (d + 15) / 16 * 16; }
  // Of products of decayed keys: their factors go up to e^40, which f16 does not have.
  DType wide() const { return type == bf16 ? bf16 : f32; }
};
inline constexpr float least_gate = -5;

// q, k, v, g, beta [, initial_state,] scale give out [, final_state]; to keep, states and written.
lang::Kernel kda_kernel(const KdaKernel& c);
// q, k, g, beta, dout [, dfinal_state,] scale give dstates, those of the states behind a chunk, dright, of r,
// and dv [, dinitial_state].
lang::Kernel kda_state_gradients_kernel(const KdaKernel& c);
// q, k, v, g, beta, dout, states, written, dstates, dright, scale give dq, dk, dg, dbeta, for every chunk by
// itself.
lang::Kernel kda_gradients_kernel(const KdaKernel& c);

}  // namespace tegula::ops
