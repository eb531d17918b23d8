// Whose the chunks of packed sequences are. A grid that had a block for each chunk of the longest sequence
// that there might be, for every sequence, would have blocks without work: many of them where sequences are
// short.
#pragma once
#include "ops/linear/sequences.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

struct ChunkOwners {
  int rows = chunk_tokens_of_scan;
  int more = 0;  // tokens that each sequence has in addition
  auto fields() const { return std::tuple(labelled("rows", rows), labelled("more", more)); }
};

// cu_seqlens and the steps of a bisection of sequences give chunk_owners.
lang::Kernel chunk_owners_kernel(const ChunkOwners& c);
// Those of fences of so many tokens, in a list that lives as long as the call.
tegula::Tensor listed_owners(Launch& launch, const TensorRef& fences, std::int64_t tokens,
                             const ChunkOwners& c);
// Gives them to all later programs of a call that has packed sequences, once: a call has one number of rows,
// and of more.
void share_chunk_owners(const BoundCall& call, Launch& launch, const ChunkOwners& c = {});

}  // namespace tegula::ops
