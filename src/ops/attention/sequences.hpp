// Sequences packed one after another.
#pragma once
#include "ops/attention/heads.hpp"

namespace tegula::ops {

// The most queries and keys of a sequence.
struct PackedLengths {
  std::int64_t queries = 0, keys = 0;
};

// What a call says of packed sequences; most: 0 where it does not know.
struct PackedSequences {
  const std::optional<TensorRef>&cu_seqlens_q, &cu_seqlens_k;
  PackedLengths most = {};
};

// cu_seqlens of queries and keys are given together or not at all (then the result is 0), start with 0, never
// fall and end with the number of tokens.
PackedLengths check_sequences(const Arguments& args, const PackedSequences& given,
                              const HeadTensors& tensors);

}  // namespace tegula::ops
