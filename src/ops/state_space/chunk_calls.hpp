// What calls of the steps of ssd, and of their gradients, launch.
#pragma once
#include "ops/linear/sequences.hpp"
#include "tegula/ops/ssd_chunks.hpp"

namespace tegula::ops {

void run_chunk_states(const Bound<SsdChunkState>& c, Launch& launch);
void run_chunk_states_backward(const Bound<SsdChunkState>& c, Launch& launch);
void run_passing(const Bound<SsdStatePassing>& c, Launch& launch);
void run_passing_backward(const Bound<SsdStatePassing>& c, Launch& launch);
void run_chunk_scan(const Bound<SsdChunkScan>& c, Launch& launch);
void run_chunk_scan_backward(const Bound<SsdChunkScan>& c, Launch& launch);

}  // namespace tegula::ops
