// A checked call of the gradients of attention over selected blocks: what the program gets.
#pragma once
#include "ops/nsa/backward_kernel.hpp"
#include "ops/nsa/call.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"

namespace tegula::ops {

struct NsaSelectedBackward : NsaSelectedOptions, NsaSelectedBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, block_indices = {}, out = {}, lse = {};
  // Not where the forward call writes its own.
  using NsaSelectedBackwardOptions::window_lse, NsaSelectedBackwardOptions::window_out;
};
const OperatorSchema& nsa_selected_attention_backward_schema();

struct NsaBackwardCall {
  NsaBackwardKernel kernel;
  NsaCall forward;
  TensorRef choice, counts;          // a row for each head that selects
  TensorRef dout, out, dwindow_out;  // in the form of programs
  // With `window`: gradients of the window's, which partials add.
  const NsaSelectedBackward* op = nullptr;
};

NsaBackwardCall nsa_backward_call(const Bound<NsaSelectedBackward>& bound);
// The call may be of another operator with the tensors and options of this one. The branch's result and its
// gradient, which may have other names there, are given as that operator has them, and those of the window in
// `op`, which outlives the result.
NsaBackwardCall nsa_backward_call(const BoundCall& bound, const NsaSelectedBackward& op,
                                  const TensorRef& dout, const TensorRef& out);
// The gradients, by one pass or two.
void run_nsa_backward(const NsaBackwardCall& call, Launch& launch);

// Uses nsa_backward_kernel.
void run_two_passes(const NsaBackwardCall& call, Launch& launch);

// Whether nsa_one_pass_kernel can do what is asked for; its instance for the call.
bool can_take_one_pass(const NsaBackwardCall& call);
NsaOnePassKernel one_pass_kernel(const NsaBackwardCall& call);
// Whether it is the way to go on a GPU.
bool takes_one_pass(const NsaBackwardCall& call);
// Tokens that share a call of it, so that partials take no more memory than sums of dq in f32 would.
std::int64_t tokens_of_one_pass(const NsaBackwardCall& call, const NsaOnePassKernel& kernel);
void run_one_pass(const NsaBackwardCall& call, const NsaOnePassKernel& kernel, std::int64_t tokens_of_call,
                  Launch& launch);

}  // namespace tegula::ops
