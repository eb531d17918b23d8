// A checked call of the gradients of attention over selected blocks: what the program gets.
#pragma once
#include "ops/attention/backward_call.hpp"
#include "ops/nsa/backward_kernel.hpp"
#include "ops/nsa/call.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"

namespace tegula::ops {

struct NsaBackwardCall {
  NsaBackwardKernel kernel;
  NsaCall forward;
  BackwardInputs inputs, window;
  TensorRef choice, counts;  // a row for each head that selects
};

// An ArgumentError if the arguments are wrong.
NsaBackwardCall prepare_nsa_backward(const BackwardTensors& given, const TensorRef& q, const TensorRef& k,
                                     const TensorRef& v, const TensorRef& block_indices,
                                     const NsaSelectedOptions& options,
                                     const NsaSelectedBackwardOptions& gradients);

}  // namespace tegula::ops
