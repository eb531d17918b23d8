// Long sequences of few heads, divided: each segment is passed over from no state and from the identity at
// once, which gives what it adds and what becomes of any state in it; from these follow, one after the other,
// the states that segments begin with; then each segment is a sequence of its own.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// How many segments the sequences of a call get: 1 where that takes the least time. `chain` is the pass over
// the chunks of a sequence that is not divided.
std::int64_t segments_of(const BoundCall& call, const ScanKernel& chain);
// The pass over so many segments, with columns that take the least time.
ScanKernel of_segments(const BoundCall& call, const ScanKernel& c, std::int64_t parts);
// [batch, tokens, …] becomes [batch · segments, tokens / segments, …]; nothing where strides do not allow it.
std::optional<TensorRef> divided(const TensorRef& tensor, std::int64_t segments);

// ends [batch, segments, heads, d, d_v + d] of scan_states_kernel with `segment` [, initial_state] give
// starts [batch, segments, heads, d, d_v] [, final_state].
lang::Kernel segment_states_kernel(const ScanKernel& c);

}  // namespace tegula::ops
