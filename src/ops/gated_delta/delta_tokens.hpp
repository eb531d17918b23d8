// Calls of the gated delta rule, with a decay for a head or for each feature, token by token.
#pragma once
#include "ops/linear/recurrent.hpp"
#include "ops/schema/launch.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

// `last`: the states after the last token are wanted, or there are gradients of them.
template <class Op>
RecurrentKernel delta_recurrence(const Bound<Op>& c, bool by_feature, bool last) {
  RecurrentKernel kernel{.type = c.type("q"), .result = c.type("q")};
  kernel.d = c.small_dim("d"), kernel.d_v = c.small_dim("d_v");
  if (by_feature)
    kernel.block = 16;  // their decays take registers, too, and so more blocks share a processor
  kernel.g = c.type_if("g"), kernel.beta = c.type("beta"), kernel.by_feature = by_feature;
  kernel.unit = c->qk_l2norm, kernel.packed = c.has("cu_seqlens");
  kernel.first = c.has("initial_state"), kernel.last = last;
  return kernel;
}

// The results of all tokens; the gradients.
void run_delta_tokens(const BoundCall& c, Launch& launch, const RecurrentKernel& kernel);
void differentiate_delta_tokens(const BoundCall& c, Launch& launch, const RecurrentKernel& kernel);

}  // namespace tegula::ops
