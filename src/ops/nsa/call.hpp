// A checked call of attention over selected blocks: what the program gets.
#pragma once
#include "ops/nsa/kernel.hpp"
#include "ops/pieces/heads.hpp"
#include "ops/schema/launch.hpp"
#include "tegula/ops/nsa_selected_attention.hpp"

namespace tegula::ops {

struct NsaSelected : NsaSelectedOptions {
  TensorRef q = {}, k = {}, v = {}, block_indices = {};
};
const OperatorSchema& nsa_selected_attention_schema();

struct NsaCall {
  NsaKernel kernel;
  HeadTensors tensors;
  TensorRef choice, counts;     // a row for each query head, repeated where heads share one
  bool per_query_head = false;  // heads of a group select differently
  float scale = 1;
  std::int64_t longest = 0, longest_keys = 0;  // of packed sequences
  TensorRef q_begin, k_begin;                  // of packed sequences
};

// For the operator or its gradient, which have the same tensors and options. With `lists`, planned for a GPU.
NsaCall nsa_call(const BoundCall& bound, const NsaSelectedOptions& options, bool lists);
// Completes call.kernel.
void plan_nsa_call(const AttentionTiles& tiles, bool lists, NsaCall& call);
// The selected blocks alone. Where the kernel divides, not more tokens share a call of it than
// `tokens_of_call`, or as many as there is memory for.
void attend_nsa(const NsaCall& call, Launch& launch, std::int64_t tokens_of_call = 0);
// The call of `attention` that computes the window of the same queries and keys.
AttentionOptions window_options(const NsaSelectedOptions& options);
// Whether a kernel for GPUs can leave blocks to a pass over keys.
bool can_divide(const NsaCall& call);

}  // namespace tegula::ops
