// A checked call of attention over selected blocks: what the program gets.
#pragma once
#include "ops/attention/heads.hpp"
#include "ops/nsa/kernel.hpp"
#include "tegula/ops/nsa_selected_attention.hpp"

namespace tegula::ops {

struct NsaCall {
  NsaKernel kernel;
  TensorRef q, k, v;  // as given
  HeadTensors tensors;
  TensorRef lists, list_lengths;  // [batch, tokens, selecting heads, …]
  TensorRef choice, counts;       // a row for each query head, repeated where heads share one
  bool per_query_head = false;    // heads of a group select differently
  float scale = 1;
  std::int64_t longest = 0, longest_keys = 0;  // of packed sequences
};

// An ArgumentError of `op` if the arguments are wrong. With `lists`, planned for a GPU.
NsaCall prepare_nsa(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                    const TensorRef& block_indices, const NsaSelectedOptions& options, bool lists,
                    const char* op = "nsa_selected_attention");
// Completes call.kernel.
void plan_nsa_call(const AttentionTiles& tiles, bool lists, NsaCall& call);
// Where the kernel divides, not more tokens share a call of it than `tokens_of_call`, or as many as there is
// memory for.
NsaSelectedResult run_nsa(const NsaCall& call, const NsaSelectedOptions& options,
                          std::int64_t tokens_of_call = 0);
// The selected blocks alone; of the options, where packed sequences begin and the target count.
void attend_nsa(const NsaCall& call, const HeadOutputs& outputs, const NsaSelectedOptions& options,
                std::int64_t tokens_of_call = 0);
// Whether a kernel for GPUs can leave blocks to a pass over keys.
bool can_divide(const NsaCall& call);

// With check_indices, an ArgumentError if an entry names no block.
void check_nsa_indices(const Arguments& args, const NsaCall& call, const NsaSelectedOptions& options);

// The call of `attention` that computes the window of the same queries and keys.
AttentionOptions window_options(const NsaSelectedOptions& options);

}  // namespace tegula::ops
