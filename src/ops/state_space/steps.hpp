// The inputs that the scan of a state space model derives from its step sizes, and their gradients.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

struct StepsKernel {
  DType dt = f32;
  bool bias = false, softplus = false, packed = false;
  bool weights = false, steps = false;  // which of the two are wanted
  std::optional<int> of_tile = {};      // rows of a chunk, if not those of scans
  int rows() const { return of_tile.value_or(chunk_tokens_of_scan); }
  auto fields() const {
    return std::tuple(dt, labelled("bias", bias), labelled("softplus", softplus), labelled("packed", packed),
                      labelled("weights", weights), labelled("steps", steps), labelled("rows", of_tile));
  }
};
// dt, A [, dt_bias] give sums, of steps · A inside chunks as logarithms to base 2, and steps as weights
// [batch, chunks, heads, rows], as sums are, or as steps [batch, tokens, heads].
lang::Kernel steps_kernel(const StepsKernel& c);

// Steps and their sums of a call with dt, A [, dt_bias]: weights for scans, whose chunks have so many rows,
// or steps for gradients of steps.
struct Steps {
  Tensor sums, weights = {}, steps = {};
};
Steps form_weights(const BoundCall& call, Launch& launch, bool softplus, std::optional<int> of_tile = {});
Steps form_steps(const BoundCall& call, Launch& launch, bool softplus, bool and_weights = false,
                 std::optional<int> of_tile = {});

struct StepProductsKernel {
  DType type = f32, dt = f32;
  int p = 64;
  bool skip = false, gate = false, bias = false, softplus = false;
  bool states = false;  // there are no results but states
  auto fields() const {
    return std::tuple(type, labelled("dt", dt), p, labelled("skip", skip), labelled("gate", gate),
                      labelled("bias", bias), labelled("softplus", softplus), labelled("states", states));
  }
};
// x, steps give v = steps · x; with a gate z, dout, y, which is out before it, give dy, dz and skips [batch,
// tokens, heads], the sums of x · dy.
lang::Kernel step_values_kernel(const StepProductsKernel& c);
// x, dt, A, steps, dv, dgates, which are gradients of steps · A, [, dy, D, skips, dt_bias] give dx and ddt,
// and for each token and head what it adds to the gradients of A, D and dt_bias: `parts` [3, batch, tokens,
// heads].
lang::Kernel step_gradients_kernel(const StepProductsKernel& c);
// What the gradient of a scan gives for values v and sums of steps · A, with the gradient dy of results.
struct GradientsOfScan {
  const Tensor &steps, &dv;
  TensorRef dy;
  const Tensor &skips, &dsums;
};
// From these dx, ddt and, as far as the call has them, dA, dD and ddt_bias, which are sums over all tokens.
void differentiate_steps(const BoundCall& call, Launch& launch, const StepProductsKernel& products,
                         const GradientsOfScan& of_scan);

}  // namespace tegula::ops
