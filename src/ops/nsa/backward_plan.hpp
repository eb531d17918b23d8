// The tiles of the gradients of attention over selected blocks, in two passes.
#pragma once
#include "ops/nsa/backward_kernel.hpp"

namespace tegula::ops {

// Completes the kernel, whose forward is planned for CPUs; `tokens` is the most of a sequence. On a GPU tiles
// fit its shared memory: steps take fewer keys, and heads that find no room together have tiles of their own.
void plan_two_passes(bool on_gpu, std::int64_t tokens, NsaBackwardKernel& kernel);

}  // namespace tegula::ops
