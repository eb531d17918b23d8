// Scans of few heads over long sequences, divided: what each segment adds to a state, and by how much one
// fades in it; from these, one after the other, the states that segments begin with; then each segment is a
// sequence of its own.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// The tensors of a scan by the names of scan_kernel, where it has them.
struct ScanTensors {
  TensorRef q, k, v, z = {}, sums = {}, weights = {}, out = {}, initial_state = {}, final_state = {};
  double scale = 1;
};
// Runs scan_kernel over the sequences of a call, or over segments of them where that takes less time.
void launch_scan(const BoundCall& call, Launch& launch, const ScanKernel& scan, const ScanTensors& tensors);

// The states of chunks and their gradients, from the first token to the last and back.
struct StateTensors {
  TensorRef q, k, v, sums, dout, initial_state = {}, dfinal_state = {};
  double scale = 1;
  TensorRef states, dstates, dv, dinitial_state = {};
};
// Runs scan_states_kernel and scan_state_gradients_kernel, over segments where that takes less time.
void launch_states(const BoundCall& call, Launch& launch, const ScanKernel& scan,
                   const StateTensors& tensors);

// ends [batch, segments, heads, d, d_v] [, fades [batch, segments, heads], initial_state] give starts, of the
// shape of ends [, final_state]; in reverse from the last segment to the first.
lang::Kernel scan_segments_kernel(const ScanKernel& c);

// [batch, tokens, …] becomes [batch · segments, tokens / segments, …]; nothing where strides do not allow it.
std::optional<TensorRef> divided(const TensorRef& tensor, std::int64_t segments);
// [batch, segments, …] becomes [batch · segments, …].
TensorRef as_sequences(const tegula::Tensor& tensor);

}  // namespace tegula::ops
