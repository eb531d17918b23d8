// The options of attention from those of the registry.
#pragma once
#include "ops/registry.hpp"
#include "tegula/ops/attention.hpp"

namespace tegula::ops {

AttentionOptions attention_options(const Tensors& inputs, const Options& options,
                                   Target target = Target::automatic());

}  // namespace tegula::ops
