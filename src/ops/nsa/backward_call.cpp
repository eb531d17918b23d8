#include "ops/nsa/backward_call.hpp"

#include <algorithm>

#include "ops/nsa/backward_plan.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

void plan_lists(NsaBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  const bool packed = call.kernel.forward.varlen;
  const std::int64_t queries = t.q.size(-3), keys = t.k.size(-3),
                     longest_keys = packed ? std::min(call.forward.longest_keys, keys) : keys;
  call.kernel.chunk = rows_of_chunk(
      inverse_rows, queries, (longest_keys + call.kernel.forward.block - 1) / call.kernel.forward.block,
      counts_of_token * (queries + keys));
}

}  // namespace

NsaBackwardCall nsa_backward_call(const Bound<NsaSelectedBackward>& bound) {
  NsaBackwardCall call;
  call.op = &*bound;
  call.forward = nsa_call(bound.call(), *bound, false);
  const HeadTensors& t = call.forward.tensors;
  NsaBackwardKernel& kernel = call.kernel;
  kernel.forward = call.forward.kernel;
  kernel.per_query_head = call.forward.per_query_head;
  kernel.dlse = bound.has("dlse");
  kernel.window = bound.has("dwindow_out"), kernel.window_dlse = bound.has("dwindow_lse");
  kernel.dscale = bound->sel_scale_gradient;
  const int members_at = t.q.rank() - 1;
  const bool one = !kernel.per_query_head && call.forward.choice.size(members_at) > 1;
  auto of_heads = [&](const TensorRef& tensor) { return one ? tensor.slice(members_at, 0, 1) : tensor; };
  call.choice = of_heads(call.forward.choice);
  if (kernel.forward.counts) call.counts = of_heads(call.forward.counts);
  plan_two_passes(bound.on_gpu(), kernel.forward.varlen ? call.forward.longest : t.q.size(1), kernel);
  plan_lists(call);
  return call;
}

void run_two_passes(const NsaBackwardCall& call, Launch& launch) {
  const BoundCall& bound = launch.call();
  const auto formed = [&](const char* name) { return bound.has(name) ? bound.formed(name) : TensorRef(); };
  TensorRef dscale;
  if (call.kernel.dscale) {
    dscale = bound.formed("dsel_scale");
    dscale =
        split_heads(dscale, dscale.rank() - 2, call.kernel.per_query_head ? call.forward.tensors.group() : 1);
  }
  launch(call.kernel, nsa_backward_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"scale", call.forward.scale},
          {"window_dout", formed("dwindow_out")},
          {"window_dlse", formed("dwindow_lse")},
          {"left", call.op->window - 1},
          {"dscale", dscale},
          {"q_begin", call.forward.q_begin},
          {"k_begin", call.forward.k_begin},
          {"longest_q", call.forward.longest},
          {"longest_k", call.forward.longest_keys}});
}

}  // namespace tegula::ops
