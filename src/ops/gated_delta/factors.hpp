// What chunks of the gated delta rule have alone. With L the strictly lower triangle of β k kᵀ ∘ e^(g_i −
// g_j) and A = (I + L)⁻¹, a chunk writes A β (v − e^g k · state), and scores are those of q kᵀ that are seen,
// with the decays between their tokens and the scale.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// Vectors over the tokens of a chunk: β, sums g of gates from the first token on, e^g, e^(g_last − g) and
// scale · e^g.
struct DeltaVector {
  static constexpr int share = 0, summed = 1, grown = 2, faded = 3, asked = 4, count = 5;
};

struct DeltaKernel {
  DType type = f32, beta = f32;
  int d = 64;
  bool gated = false, packed = false;
  auto fields() const {
    return std::tuple(type, labelled("beta", beta), labelled("d", d), labelled("gated", gated),
                      labelled("packed", packed));
  }
  ScanKernel scan() const { return {.type = type, .d = d, .gated = gated, .packed = packed}; }
};

// q, k, beta, scale [, g] give inverse and scores [batch, chunks, heads, 64, 64], and
// vectors [batch, chunks, heads, DeltaVector::count, 64].
lang::Kernel delta_factors_kernel(const DeltaKernel& c);

// A tile [rows, rows] of f32 whose rows are so far apart that threads of four rows read from banks of their
// own.
lang::Shared tile_to_invert(int rows);
// x becomes (I + x)⁻¹, of a strictly lower triangular tile: blocks of 16 on the diagonal by substitution,
// then neighbours by products.
void invert_lower(lang::Shared& x);

}  // namespace tegula::ops
