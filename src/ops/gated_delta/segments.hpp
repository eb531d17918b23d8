// Long sequences of few heads, divided: each segment is passed over from no state and from the identity at
// once, which gives what it adds and what becomes of any state in it; from these follow, one after the other,
// the states that segments begin with; then each segment is a sequence of its own.
#pragma once
#include "ops/gated_delta/delta_pass.hpp"
#include "ops/linear/scan_segments.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

// How many segments the sequences of a call get: 1 where that takes the least time.
std::int64_t segments_of(const BoundCall& call, const DeltaPass& pass);
// The same of passes over states with decays of features, also with those over gradients.
std::int64_t segments_of_kda(const BoundCall& call, const ScanKernel& scan, bool gradients);
// How many stretches of all sequences pass one after the other, each while processors that the pass leaves
// idle form the factors of the next: 1 where the pass has a block for each processor, or that takes longer.
std::int64_t stretches_of(const BoundCall& call, const DeltaPass& pass);
// Says where processors wait for most of the time of passes in so many segments, and what more features than
// one warp group has cost.
void note_passes(const BoundCall& call, const DeltaPass& pass, std::int64_t segments, Launch& launch);
// Rows of a block of the pass over segments: of few heads there are the more blocks.
inline constexpr int rows_of_segments = 16;

// ends [batch, segments, heads, d_v, d] and maps [batch, segments, heads, d, d] of delta_pass_kernel with
// `segment` [, initial_state] give starts [batch, segments, heads, d_v, d] [, final_state].
lang::Kernel segment_states_kernel(const DeltaPass& c);
// The same of gradients, from the last segment to the first: dstarts, those of the states that segments begin
// with if nothing followed a segment, and maps [, dfinal_state] give dends, those of the states that they end
// with [, dinitial_state]. `last` says that there is a gradient of the last state, `first` that one of the
// first is wanted.
lang::Kernel segment_gradients_kernel(const DeltaPass& c);

}  // namespace tegula::ops
