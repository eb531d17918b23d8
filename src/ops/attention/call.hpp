// A checked call of dense attention: what the program gets.
#pragma once
#include "ops/attention/heads.hpp"
#include "ops/attention/kernel.hpp"

namespace tegula::ops {

struct AttentionCall {
  AttentionKernel kernel;
  HeadTensors tensors;
  float scale = 1;
  std::int64_t left = 0, right = 0, longest = 0;
};

// An ArgumentError if the arguments are wrong.
AttentionCall prepare_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                const AttentionOptions& options);

}  // namespace tegula::ops
