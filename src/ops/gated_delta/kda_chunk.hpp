// What the programs of kda share: parameters, and the decays of features of a chunk.
#pragma once
#include "ops/gated_delta/factors.hpp"
#include "ops/gated_delta/kda_kernel.hpp"

namespace tegula::ops {

// Some features of a chunk: q, k and what gates make of them. No factor overflows, as those of tokens count
// from the middle of what their subchunk of the chunk fades by, and those from one subchunk to a later one
// are below 1.
class KdaFeatures {
 public:
  explicit KdaFeatures(const KdaKernel& kernel)
      : c(kernel),
        q({c.rows(), c.step()}, c.type),
        k({c.rows(), c.step()}, c.type),
        gates({c.rows(), c.step()}, f32),
        sums({c.rows(), c.step()}, f32),
        factors({(c.subchunks() + 2) * c.subchunks(), c.step()}, f32),
        near({c.rows(), c.step()}, f32),
        away({c.rows(), c.step()}, f32) {}

  // Where q, k and gates have been loaded.
  void form();
  // e^(m − m of the token's subchunk), of a subchunk's middle m; 0 for tokens after that subchunk.
  lang::Expr towards(int subchunk, const lang::Expr& t, const lang::Expr& i) const {
    return factors(subchunk * c.subchunks() + t / c.subchunk_rows, i);
  }
  // e^G and e^(G_last − G).
  lang::Expr since_first(const lang::Expr& t, const lang::Expr& i) const {
    return near(t, i) * towards(c.subchunks(), t, i);
  }
  lang::Expr until_last(const lang::Expr& t, const lang::Expr& i) const {
    return away(t, i) * towards(c.subchunks() + 1, t, i);
  }
  // x e^(G − m).
  lang::Shared times_near(const lang::Shared& x) const;
  // k e^(m − G) towards a subchunk.
  void keys_towards(int subchunk, lang::Shared& result) const;

  const KdaKernel& c;
  lang::Shared q, k, gates, sums, factors;  // sums of gates from the first token of each subchunk on
  lang::Fragment near, away;                // e^(G − m) and e^(m − G), of the middles of subchunks

 private:
  void sum_gates();
  void form_factors();
};

// Products of the keys of all tokens, as rows, with keys and queries of each subchunk.
struct KdaProducts {
  const KdaKernel& c;
  std::vector<lang::Fragment> keys, queries;

  explicit KdaProducts(const KdaKernel& kernel);
  // Adds those of some features.
  void add(const KdaFeatures& x);
  // L, with the shares of tokens, and their scores.
  void finish(const lang::Shared& betas, const lang::Expr& scale, lang::Shared& whole,
              lang::Shared& seen) const;
};

// The parameters that all have.
struct KdaInputs {
  const KdaKernel& c;
  Sequences s{c.packed};
  lang::Dim heads{"heads"};
  LazyDim key_heads{"key_heads"}, chunks{"chunks"};

  explicit KdaInputs(const KdaKernel& kernel) : c(kernel) {}

  lang::Extents keys() const { return s.shape({key_heads, c.d}); }
  lang::Extents of_features() const { return s.shape({heads, c.d}); }
  lang::Extents of_heads() const { return s.shape({heads}); }
  lang::Extents of_rows() const { return s.shape({heads, c.rows()}); }
  lang::Extents of_sums() const { return s.shape({heads, c.steps() + 1}); }
  lang::Extents columns() const { return s.shape({heads, c.d_v}); }
  lang::Extents states() const { return {s.batch, chunks, heads, c.d, c.d_v}; }
  lang::Expr blocks() const { return lang::ceildiv(c.d_v, c.block); }
  lang::Expr key_head(const lang::Expr& h) const {
    return h / (lang::Expr(heads) / lang::Operand(key_heads));
  }
};

}  // namespace tegula::ops
