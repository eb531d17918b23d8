// Programs of the steps of a state space model's scan: states are [p, n], as callers have them.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// k, v, sums, weights give states, which the tokens of each chunk leave, and decays, of a state before it.
lang::Kernel chunk_states_kernel(const ScanKernel& c);
// q, k, v, sums, weights, starts [, D, z] give out.
lang::Kernel chunk_scan_kernel(const ScanKernel& c);

struct StatePassingKernel {
  int p = 64, n = 128;
  bool first = false;  // there is an initial state
  auto fields() const { return std::tuple(labelled("p", p), labelled("n", n), labelled("first", first)); }
};
// states, decays [, initial_state] give starts and final_state.
lang::Kernel state_passing_kernel(const StatePassingKernel& c);

}  // namespace tegula::ops
