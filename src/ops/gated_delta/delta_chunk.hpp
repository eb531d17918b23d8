// What programs of the gated delta rule have for each chunk.
#pragma once
#include "ops/gated_delta/factors.hpp"
#include "ops/linear/scan_pieces.hpp"

namespace tegula::ops {

inline lang::Extents of_vectors(const ScanInputs& in) {
  return {in.s.batch, in.chunks, in.heads, DeltaVector::count, in.c.rows()};
}
// A matrix with a row for each token of a chunk lies in one piece.
inline lang::Extents of_rows(const ScanInputs& in, int columns) {
  return {in.s.batch, in.chunks, in.heads, in.c.rows(), columns};
}
// States are transposed.
inline lang::Extents of_states(const ScanInputs& in) {
  return {in.s.batch, in.chunks, in.heads, in.c.d_v, in.c.d};
}

// What sequences or their segments begin or end with.
inline lang::Extents of_parts(const ScanInputs& in, int rows, int columns) {
  if (in.c.divided) return {in.sequences, in.segments, in.heads, rows, columns};
  return {in.sequences, in.heads, rows, columns};
}

// What tokens of a tile are to each other, by their keys, shares and gates.
struct RuleTokens {
  struct Chunk {
    lang::Expr n, h, chunk, row;
  };

  RuleTokens(const ScanKernel& kernel, DType type_of_beta);

  lang::Shared tile() const;
  void load_keys(const lang::Tensor& from, const Chunk& at, lang::Shared& tile) const;
  // Shares, and sums of gates. After the last token gates are 0, so that the last row has the whole of a
  // chunk.
  void form_sums(const Chunk& at, lang::Shared& vectors) const;
  // Scores of queries with the keys that they see.
  lang::Fragment form_scores(const lang::Shared& qs, const lang::Shared& ks,
                             const lang::Shared& vectors) const;
  // L, in a tile that becomes (I + L)⁻¹.
  lang::Shared form_lower(const lang::Shared& ks, const lang::Shared& vectors) const;
  // By how much what a token writes has faded until another one.
  static lang::Expr between(const lang::Shared& vectors, const lang::Expr& i, const lang::Expr& j);

  const ScanKernel scan;
  ScanInputs in{scan};
  int rows = scan.rows();
  lang::Tensor q, k, beta, g;
  lang::Expr scale;
};

}  // namespace tegula::ops
