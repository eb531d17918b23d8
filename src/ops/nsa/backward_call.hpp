// A checked call of the gradients of attention over selected blocks: what the program gets.
#pragma once
#include "ops/attention/backward_call.hpp"
#include "ops/nsa/backward_kernel.hpp"
#include "ops/nsa/call.hpp"
#include "ops/nsa/slots_kernel.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"

namespace tegula::ops {

struct NsaBackwardCall {
  NsaBackwardKernel kernel;
  NsaCall forward;
  BackwardInputs inputs, window;
  // The window as a call of `attention`: its tensors [batch, tokens, heads, features].
  BackwardTensors window_tensors;
  AttentionOptions window_options;
  TensorRef choice, counts;  // a row for each head that selects
  std::optional<TensorRef> cu_seqlens_q, cu_seqlens_k;
};

// An ArgumentError if the arguments are wrong.
NsaBackwardCall prepare_nsa_backward(const BackwardTensors& given, const TensorRef& q, const TensorRef& k,
                                     const TensorRef& v, const TensorRef& block_indices,
                                     const NsaSelectedOptions& options,
                                     const NsaSelectedBackwardOptions& gradients);

// By nsa_backward_kernel; dscale as call.choice, if it is wanted.
void run_two_passes(const NsaBackwardCall& call, const NsaSelectedOptions& options,
                    const GradientOutputs& outputs, const TensorRef& dscale);

// Whether nsa_slots_kernel can do what is asked for; its instance for the call.
bool can_take_slots(const NsaBackwardCall& call);
NsaSlotsKernel slots_kernel(const NsaBackwardCall& call);
// Whether it is the way to go on a GPU.
bool takes_slots(const NsaBackwardCall& call);
// Tokens that share a call of it, so that slots take no more memory than sums of dq in f32 would.
std::int64_t tokens_of_slots(const NsaBackwardCall& call, const NsaSlotsKernel& kernel);
void run_slots(const NsaBackwardCall& call, const NsaSlotsKernel& kernel, std::int64_t tokens_of_call,
               const GradientOutputs& outputs, Target target);

}  // namespace tegula::ops
