// Checks of gradients that sparse attention shares.
#pragma once
#include "ops/attention/heads.hpp"
#include "tegula/ops/attention_backward.hpp"

namespace tegula::ops {

// Tensors of a call in the caller's layout.
struct BackwardTensors {
  TensorRef dout, out, lse;
  std::optional<TensorRef> dlse;
  bool deterministic = true;
};

// In the layout of the programs, heads split into groups. Names of arguments get the prefix.
struct BackwardInputs {
  TensorRef dout, out, lse, dlse;
};
BackwardInputs check_backward(const Arguments& args, const HeadTensors& tensors, Layout layout,
                              const BackwardTensors& given, const std::string& prefix = "");

// Gradients in the caller's layout and in that of the programs.
struct GradientOutputs {
  AttentionGradients result;
  TensorRef dq, dk, dv;
};
GradientOutputs make_gradients(const Arguments& args, const HeadTensors& tensors, Layout layout,
                               const AttentionBackwardOptions& given);

}  // namespace tegula::ops
