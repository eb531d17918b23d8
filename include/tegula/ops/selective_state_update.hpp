// One token of a selective state space model.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct SelectiveStateUpdate {
  TensorRef state = {};                               // [batch, heads, p, n], f32, f16 or bf16
  TensorRef x = {}, dt = {};                          // [batch, heads, p], f32, f16 or bf16
  TensorRef A = {};                                   // f32 [heads, p, n]
  TensorRef B = {}, C = {};                           // [batch, groups, n]: heads is a multiple of groups
  std::optional<TensorRef> D = {};                    // f32 [heads, p]: D · x is added to the result
  std::optional<TensorRef> z = {};                    // as x: the result is multiplied by silu(z)
  std::optional<TensorRef> dt_bias = {};              // f32 [heads, p], added to dt
  bool dt_softplus = false;                           // dt becomes log(1 + exp(dt + dt_bias))
  std::optional<TensorRef> out = {}, new_state = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct SelectiveStateUpdateResult {
  Tensor out, new_state;  // of x's and of state's shape and dtype
};

// new_state = e^(dt · A) · state + dt · x Bᵀ and out = new_state C + D · x, times silu(z) if z is given,
// computed in f32. Values shared by heads or features may be views with stride 0. Throws an ArgumentError for
// wrong shapes, dtypes or options.
SelectiveStateUpdateResult selective_state_update(const TensorRef& state, const TensorRef& x,
                                                  const TensorRef& dt, const TensorRef& A, const TensorRef& B,
                                                  const TensorRef& C, SelectiveStateUpdate options = {});

}  // namespace tegula::ops
TEGULA_API_END
