// Programs of the steps of a state space model's scan: states are [p, n], as callers have them.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// k, v, sums, weights give states, which the tokens of each chunk leave, and decays, of a state before it.
lang::Kernel chunk_states_kernel(const ScanKernel& c);
// q, k, v, sums, weights, starts [, D, z] give out.
lang::Kernel chunk_scan_kernel(const ScanKernel& c);
// Their gradients, for values v that are weighted and results without D and z: k, v, sums, dstates, ddecays
// give dk, dv, dsums; q, k, v, dy, sums, starts give dq, dk, dv, dsums, dstarts.
lang::Kernel chunk_state_gradients_kernel(const ScanKernel& c);
lang::Kernel chunk_scan_gradients_kernel(const ScanKernel& c);

struct StatePassingKernel {
  int p = 64, n = 128;
  bool first = false;   // there is an initial state
  bool packed = false;  // sequences lie between fences of chunks
  auto fields() const {
    return std::tuple(labelled("p", p), labelled("n", n), labelled("first", first),
                      labelled("packed", packed));
  }
  // What of a state a block has.
  int columns() const { return (n + 15) / 16 * 16; }
  int rows() const;
  std::int64_t blocks() const { return (p + rows() - 1) / rows(); }
};
// states, decays [, initial_state] give starts and final_state.
lang::Kernel state_passing_kernel(const StatePassingKernel& c);
// starts, decays, dstarts, dfinal_state give dstates [, dinitial_state] and, of each block, what it adds to
// ddecays: those of blocks, `parts` [batch, chunks, heads, blocks], which decay_sums_kernel adds.
lang::Kernel state_passing_gradients_kernel(const StatePassingKernel& c);
lang::Kernel decay_sums_kernel(const StatePassingKernel& c);

}  // namespace tegula::ops
