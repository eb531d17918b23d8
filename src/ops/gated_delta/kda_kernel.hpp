// The gated delta rule with a decay for each feature, in one pass over the chunks of a head.
#pragma once
#include "ops/linear/sequences.hpp"

namespace tegula::ops {

struct KdaKernel {
  DType type = f32, beta = f32;
  int d = 64, d_v = 64, block = 64;  // features, and columns of values that a block has
  bool first = false, last = false, packed = false;
  auto fields() const {
    return std::tuple(type, labelled("beta", beta), labelled("d", d), labelled("dv", d_v),
                      labelled("b", block), labelled("first", first), labelled("last", last),
                      labelled("packed", packed));
  }
  static constexpr int rows = 16;  // of a chunk: features fade by e^(16 · least_gate) at most, which f32 has
  int features() const { return (d + 15) / 16 * 16; }
  // Of products of decayed keys: their factors go up to e^40, which f16 does not have.
  DType wide() const { return type == bf16 ? bf16 : f32; }
};
inline constexpr float least_gate = -5;

// q, k, v, g, beta [, initial_state,] scale give out [, final_state].
lang::Kernel kda_kernel(const KdaKernel& c);

}  // namespace tegula::ops
