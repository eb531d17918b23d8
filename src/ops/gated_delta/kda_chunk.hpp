// What the programs of kda share: parameters, and the decayed tiles of a chunk.
#pragma once
#include "ops/gated_delta/factors.hpp"
#include "ops/gated_delta/kda_kernel.hpp"

namespace tegula::ops {

// A chunk of a head: q, k and what gates make of them.
class KdaChunk {
 public:
  explicit KdaChunk(const KdaKernel& kernel)
      : c(kernel),
        q({c.rows, c.features()}, c.type),
        k({c.rows, c.features()}, c.type),
        gates({c.rows, c.features()}, f32),
        betas({c.rows}, f32) {}

  void sum_gates();
  lang::Expr total(const lang::Expr& i) const { return gates(c.rows - 1, i); }
  // Scores are (q e^(G − m)) (k e^(m − G))ᵀ, whose factors stay near 1 where m is half of what a feature
  // fades by in the chunk.
  lang::Expr from_middle(const lang::Expr& t, const lang::Expr& i) const {
    return gates(t, i) - total(i) * 0.5f;
  }
  lang::Shared towards(const lang::Shared& x) const;  // x e^(G − m)
  lang::Shared away() const;                          // k e^(m − G)
  lang::Shared faded(const lang::Shared& x) const;    // x e^G
  lang::Shared kept() const;                          // k e^(G_last − G)
  lang::Fragment scores(const lang::Shared& left, const lang::Shared& right) const;
  lang::Shared inverse(const lang::Shared& left, const lang::Shared& right) const;

  const KdaKernel& c;
  lang::Shared q, k, gates, betas;
};

// The parameters that all have.
struct KdaInputs {
  const KdaKernel& c;
  Sequences s{c.packed};
  lang::Dim key_heads{"key_heads"}, heads{"heads"};
  LazyDim sequences{"sequences"}, chunks{"chunks"};
  lang::Tensor q, k, g, beta;

  explicit KdaInputs(const KdaKernel& kernel)
      : c(kernel),
        q(lang::input("q", keys(), c.type)),
        k(lang::input("k", keys(), c.type)),
        g(lang::input("g", of_features(), f32)),
        beta(lang::input("beta", of_heads(), c.beta)) {}

  lang::Extents keys() const { return s.shape({key_heads, c.d}); }
  lang::Extents of_features() const { return s.shape({heads, c.d}); }
  lang::Extents of_heads() const { return s.shape({heads}); }
  lang::Extents columns() const { return s.shape({heads, c.d_v}); }
  lang::Extents states() const { return {s.batch, chunks, heads, c.d, c.d_v}; }
  lang::Extents ends() const { return {sequences, heads, c.d, c.d_v}; }
  lang::Expr blocks() const { return lang::ceildiv(c.d_v, c.block); }
  lang::Expr key_head(const lang::Expr& h) const { return h / (lang::Expr(heads) / key_heads); }
  lang::Tensor chunk(const lang::Tensor& t, const lang::Expr& n, const lang::Expr& chunk,
                     const lang::Expr& h) const {
    return s.chunk(t, n, chunk, h, c.rows);
  }
  void load(KdaChunk& chunk, const lang::Expr& n, const lang::Expr& h, const lang::Expr& row) const;
};

}  // namespace tegula::ops
