// What calls with step sizes launch before their scan, and after its gradients.
#include "ops/linear/chunk_owners.hpp"
#include "ops/pieces/rows.hpp"
#include "ops/state_space/steps.hpp"

namespace tegula::ops {

Steps form_steps(const BoundCall& call, Launch& launch, bool softplus, std::optional<int> of_tile) {
  share_chunk_owners(call, launch);
  Steps result{launch.scratch(shape_of_heads(call), f32), launch.scratch(shape_of_heads(call), f32)};
  launch(StepsKernel{call.type("dt"), call.has("dt_bias"), softplus, call.has("cu_seqlens"), of_tile},
         steps_kernel, {{"dt", token_view(call, "dt")}, {"steps", result.steps}, {"sums", result.sums}});
  return result;
}

namespace {

// dA, dD and ddt_bias, as far as the call has them, from what each token adds.
void sum_over_tokens(const BoundCall& call, Launch& launch, const Tensor& of_tokens) {
  const char* names[] = {"dA", "dD", "ddt_bias"};
  for (int i = 0; i < 3; ++i) {
    if (call.schema().find_tensor(names[i]) == nullptr || !call.has(names[i])) continue;
    const TensorRef own = of_tokens.ref().slice(0, i, i + 1);
    launch(RowSumKernel{}, row_sum_kernel,
           {{"x", own.reshape(shape_of_heads(call))}, {"total", call[names[i]]}});
  }
}

}  // namespace

void differentiate_steps(const BoundCall& call, Launch& launch, const StepProductsKernel& products,
                         const GradientsOfScan& of_scan) {
  const Shape heads = shape_of_heads(call);
  const Tensor dgates = launch.scratch(heads, f32),
               of_tokens = launch.scratch({3, heads[0], heads[1], heads[2]}, f32);
  launch(GateKernel{f32, {}, true, call.has("cu_seqlens")}, gate_sums_kernel,
         {{"g", of_scan.dsums}, {"sums", dgates}});
  launch(products, step_gradients_kernel,
         {{"x", token_view(call, "x")},
          {"dt", token_view(call, "dt")},
          {"steps", of_scan.steps},
          {"dv", of_scan.dv},
          {"dy", of_scan.dy},
          {"skips", of_scan.skips},
          {"dgates", dgates},
          {"dx", token_view(call, "dx")},
          {"ddt", token_view(call, "ddt")},
          {"parts", of_tokens}});
  sum_over_tokens(call, launch, of_tokens);
}

}  // namespace tegula::ops
