// The programs of the gated delta rule with a decay for each feature, over chunks of a head.
//
// With G the gates summed from a chunk's first token on, L the strictly lower triangle of β (k e^G) (k e^−G)ᵀ
// and A = (I + L)⁻¹, a chunk writes u − w · state, where w = A β k e^G and u = A β v. With the faded keys and
// queries that are formed here, states and their gradients are those of scans.
#pragma once
#include "ops/linear/recurrent.hpp"

namespace tegula::ops {

struct KdaKernel {
  DType type = f32, beta = f32;
  DType result = f32;                // of dq and dk
  int d = 64, d_v = 64, block = 64;  // features, and columns of values that a step has
  bool keep = false;                 // the inverse is wanted
  bool grouped = false;              // of gradients: heads share q and k
  bool packed = false;
  std::optional<int> of_tile = {};  // rows of a tile that holds whole sequences
  std::optional<int> threads = {};  // of a block that has one
  auto fields() const {
    return std::tuple(type, labelled("beta", beta), labelled("to", result), labelled("d", d),
                      labelled("dv", d_v), labelled("b", block), labelled("keep", keep),
                      labelled("grouped", grouped), labelled("packed", packed), labelled("rows", of_tile),
                      labelled("t", threads));
  }
  int columns() const { return block; }
  int rows() const { return of_tile.value_or(chunk_tokens_of_scan); }
  // Rows of a subchunk. Within one, a feature decays by a factor of at least e^(16 · least_gate),
  // which f32 can represent.
  static constexpr int subchunk_rows = 16;
  int subchunks() const { return rows() / subchunk_rows; }
  int features() const { return (d + 15) / 16 * 16; }
  // Features that are in shared memory together, so that a processor has room for two blocks, and how often.
  int step() const { return std::min(32 * chunk_tokens_of_scan / rows(), features()); }
  int steps() const { return (d + step() - 1) / step(); }
  // The type for products of decayed keys, whose factors reach e^40, which f16 cannot represent.
  DType wide() const { return type == bf16 ? bf16 : f32; }
};

// q, k, v, g, beta, scale give w, u, decays [batch, chunks, heads, d], and for tokens and heads faded_q =
// scale · q e^G, kept = k e^(G_last − G) [d] and scores [64], with the scale, of queries and the keys of
// their chunk [, inverse [64]].
lang::Kernel kda_factors_kernel(const KdaKernel& c);
// faded_q, scores, v, states give out, where v is what chunks write.
lang::Kernel kda_outputs_kernel(const KdaKernel& c);

// Gradients, for every chunk by itself. v, beta, dout, written, du, inverse, scale give dv, dright, of u = A
// · right, dscores and dlower [64], and the last of the sums of dbeta.
lang::Kernel kda_value_gradients_kernel(const KdaKernel& c);
// q, k, g, beta, dout, written, dright, states, dstates, dscores, dlower, scale give dq, dk, dg, and other
// sums of dbeta.
lang::Kernel kda_feature_gradients_kernel(const KdaKernel& c);
// sums [batch, tokens, heads, steps + 1] give dbeta.
lang::Kernel kda_share_gradients_kernel(const KdaKernel& c);

}  // namespace tegula::ops
