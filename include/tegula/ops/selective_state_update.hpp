// One token of a selective state space model.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

struct SelectiveStateUpdate {
  TensorRef state = {};      // [batch, heads, p, n], f32, f16 or bf16
  TensorRef x = {}, dt = {};  // [batch, heads, p], f32, f16 or bf16
  TensorRef A = {};          // f32 [heads, p, n]
  TensorRef B = {}, C = {};   // [batch, groups, n]: heads are a multiple of the groups
  std::optional<TensorRef> D = {};        // f32 [heads, p]: shares of x that are added to the results
  std::optional<TensorRef> z = {};        // as x: results are multiplied by silu(z)
  std::optional<TensorRef> dt_bias = {};  // f32 [heads, p], added to dt
  bool dt_softplus = false;               // dt becomes log(1 + exp(dt + dt_bias))
  std::optional<TensorRef> out = {}, new_state = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct SelectiveStateUpdateResult {
  Tensor out, new_state;  // of x's and of state's shape and dtype
};

// new_state = e^(dt · A) · state + dt · x Bᵀ and out = new_state C + D · x, times silu(z) where z is given,
// computed in f32. Values that heads or features share may be views with strides of 0. Wrong shapes, dtypes
// or options are an ArgumentError.
SelectiveStateUpdateResult selective_state_update(const TensorRef& state, const TensorRef& x,
                                                  const TensorRef& dt, const TensorRef& A,
                                                  const TensorRef& B, const TensorRef& C,
                                                  SelectiveStateUpdate options = {});

}  // namespace tegula::ops
