// What calls with step sizes launch before their scan, and after its gradients.
#include "ops/linear/chunk_owners.hpp"
#include "ops/pieces/rows.hpp"
#include "ops/state_space/steps.hpp"

namespace tegula::ops {

namespace {

Steps formed(const BoundCall& call, Launch& launch, const StepsKernel& c) {
  share_chunk_owners(call, launch);
  const Shape of_chunks = vector_shape(call, c.of_tile), none{0};
  Steps result{launch.scratch(of_chunks, f32), launch.scratch(c.weights ? of_chunks : none, f32),
               launch.scratch(c.steps ? shape_of_heads(call) : none, f32)};
  launch(c, steps_kernel,
         {{"dt", token_view(call, "dt")},
          {"sums", result.sums},
          {"weights", result.weights},
          {"steps", result.steps}});
  return result;
}
StepsKernel steps_of(const BoundCall& call, bool softplus) {
  return {call.type("dt"), call.has("dt_bias"), softplus, call.has("cu_seqlens")};
}

}  // namespace

Steps form_weights(const BoundCall& call, Launch& launch, bool softplus, std::optional<int> of_tile) {
  StepsKernel kernel = steps_of(call, softplus);
  kernel.weights = true, kernel.of_tile = of_tile;
  return formed(call, launch, kernel);
}

Steps form_steps(const BoundCall& call, Launch& launch, bool softplus, bool and_weights,
                 std::optional<int> of_tile) {
  StepsKernel kernel = steps_of(call, softplus);
  kernel.steps = true, kernel.weights = and_weights, kernel.of_tile = of_tile;
  return formed(call, launch, kernel);
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
