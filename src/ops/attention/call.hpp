// A checked call of dense attention: what the program gets.
#pragma once
#include "ops/attention/heads.hpp"
#include "ops/attention/kernel.hpp"
#include "ops/attention/plan.hpp"

namespace tegula::ops {

struct AttentionCall {
  AttentionKernel kernel;
  HeadTensors tensors;
  float scale = 1;
  std::int64_t left = 0, right = 0;
  std::int64_t sequences = 0, longest = 0, longest_keys = 0;  // of packed sequences
  int splits = 1;                                             // of the keys of a tile
};

// An ArgumentError of `op` if the arguments are wrong.
AttentionCall prepare_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                const AttentionOptions& options, const char* op = "attention");
// What the plan needs to know of a call.
AttentionProblem problem_of(const AttentionCall& call);

}  // namespace tegula::ops
