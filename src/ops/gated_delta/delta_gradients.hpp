// Gradients of the gated delta rule by chunks. Of what is written, w = A β (v − e^g k · state), with the
// gradient dw, y = Aᵀ dw is what all others follow from: dv = β y, and the gradient of L is −y wᵀ below the
// diagonal, so that no gradient of the inverse is formed.
#pragma once
#include "ops/gated_delta/delta_pass.hpp"

namespace tegula::ops {

// From the last chunk to the first: q, k, dout, inverse, scores, vectors [, dfinal_state] give solved, which
// is y, and dstates, both where `keep` asks for them [, dinitial_state]. `last` says that there is a gradient
// of the last state, `first` that one of the first is wanted.
lang::Kernel delta_pass_gradients_kernel(const DeltaPass& c);

struct DeltaChunkGradients {
  DType type = f32, beta = f32;
  DType result = f32;  // of dq and dk
  int d = 64, d_v = 64, block = 64;
  bool gated = false, grouped = false, packed = false;
  auto fields() const {
    return std::tuple(type, labelled("beta", beta), labelled("to", result), labelled("d", d),
                      labelled("dv", d_v), labelled("b", block), labelled("gated", gated),
                      labelled("grouped", grouped), labelled("packed", packed));
  }
};
// q, k, v, dout, written, solved, states, dstates, vectors, scale give dq, dk, dv, dbeta [, dg], for every
// chunk by itself.
lang::Kernel delta_chunk_gradients_kernel(const DeltaChunkGradients& c);

}  // namespace tegula::ops
