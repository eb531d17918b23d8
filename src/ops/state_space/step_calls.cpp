// What calls with step sizes launch before their scan, and after its gradients.
#include "ops/pieces/rows.hpp"
#include "ops/state_space/steps.hpp"

namespace tegula::ops {

Steps form_steps(const BoundCall& call, Launch& launch, bool softplus) {
  Steps result{launch.scratch(shape_of_heads(call), f32), launch.scratch(shape_of_heads(call), f32)};
  launch(StepsKernel{call.type("dt"), call.has("dt_bias"), softplus, call.has("cu_seqlens")}, steps_kernel,
         {{"dt", token_view(call, "dt")}, {"steps", result.steps}, {"sums", result.sums}});
  return result;
}

void sum_over_tokens(const BoundCall& call, Launch& launch, const Tensor& parts) {
  const char* names[] = {"dA", "dD", "ddt_bias"};
  for (int i = 0; i < 3; ++i) {
    if (call.schema().find_tensor(names[i]) == nullptr || !call.has(names[i])) continue;
    const TensorRef part = parts.ref().slice(0, i, i + 1);
    launch(RowSumKernel{}, row_sum_kernel,
           {{"x", part.reshape(shape_of_heads(call))}, {"total", call[names[i]]}});
  }
}

}  // namespace tegula::ops
