// The options of attention over selected blocks from those of the registry.
#pragma once
#include "ops/registry.hpp"
#include "tegula/ops/nsa_selected_attention.hpp"

namespace tegula::ops {

NsaSelectedOptions nsa_options(const Tensors& inputs, const Options& options,
                               Target target = Target::automatic());

}  // namespace tegula::ops
