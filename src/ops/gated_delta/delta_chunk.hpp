// The extents of what programs of the gated delta rule have for each chunk.
#pragma once
#include "ops/gated_delta/factors.hpp"
#include "ops/linear/scan_pieces.hpp"

namespace tegula::ops {

inline lang::Extents of_vectors(const ScanInputs& in) {
  return {in.s.batch, in.chunks, in.heads, DeltaVector::count, in.c.rows()};
}
// States are transposed.
inline lang::Extents of_states(const ScanInputs& in) {
  return {in.s.batch, in.chunks, in.heads, in.c.d_v, in.c.d};
}

}  // namespace tegula::ops
