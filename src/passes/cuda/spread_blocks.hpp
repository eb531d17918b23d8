// Blocks whose threads are those of several CTAs of a cluster.
//
// A program that asks for `.cluster = n` has blocks of n times `.threads` threads. No CTA has so many, nor
// the shared memory for what they keep of long rows; but where threads need nothing of each other but sums,
// largest elements and the like, it does not matter that they are not in one CTA: each has its part of every
// fragment and of what is loaded ahead, and the parts of a sum are stored in the shared memory of every CTA,
// so that all read them at home. Barriers are those of the cluster.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/copy_rings.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

// Why the threads of a block are those of one CTA, as far as the program says it; nothing if it asks for no
// cluster. What else they exchange is known when the layouts are: to the printer.
Reason reason_not_to_spread(const ir::Grid& grid, bool has_roles, const CudaTarget& target);
// The same of what is loaded ahead: a CTA has the shared memory for what its own threads copy and read.
Reason reason_of_rings(const CopyRings& rings, const ir::Grid& grid);

// Gives the block all of its threads, or leaves it the one CTA.
void spread_block(ir::Grid& grid, const Reason& not_spread);

// The threads of a CTA that has the block or a part of it.
inline int threads_of_cta(const ir::GridHints& hints) { return hints.threads / hints.cluster; }

}  // namespace tegula::passes
