// Long sequences of few heads, divided: each segment is passed over from no state and from the identity at
// once, which gives what it adds and what becomes of any state in it; from these follow, one after the other,
// the states that segments begin with; then each segment is a sequence of its own.
#pragma once
#include "ops/gated_delta/delta_pass.hpp"

namespace tegula::ops {

// How many segments the sequences of a call get: 1 where that takes the least time.
std::int64_t segments_of(const BoundCall& call, const DeltaPass& pass);
// How many stretches of all sequences pass one after the other, each while processors that the pass leaves
// idle form the factors of the next: 1 where the pass has a block for each processor, or that takes longer.
std::int64_t stretches_of(const BoundCall& call, const DeltaPass& pass);
// [batch, tokens, …] becomes [batch · segments, tokens / segments, …]; nothing where strides do not allow it.
std::optional<TensorRef> divided(const TensorRef& tensor, std::int64_t segments);

// ends [batch, segments, heads, d_v, d] and maps [batch, segments, heads, d, d] of delta_pass_kernel with
// `segment` [, initial_state] give starts [batch, segments, heads, d_v, d] [, final_state].
lang::Kernel segment_states_kernel(const DeltaPass& c);

}  // namespace tegula::ops
