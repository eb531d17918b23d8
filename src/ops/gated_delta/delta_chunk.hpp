// The extents of what programs of the gated delta rule have for each chunk.
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

}  // namespace tegula::ops
