// Blocks of a single query choose as tokens select: neighbours share a tile, whose lists are joined. On a GPU
// their calls take the program of selected attention.
#pragma once
#include "ops/block_sparse/backward_call.hpp"
#include "ops/nsa/backward_call.hpp"

namespace tegula::ops {

// The same call of that program, where it has all that is asked for and is the faster way; `tiles` as given.
std::optional<NsaCall> as_selection(const BlockSparseCall& call, const AttentionTiles& tiles);

// And of the gradients.
std::optional<NsaBackwardCall> as_selection(const BlockSparseBackwardCall& call);

}  // namespace tegula::ops
