// Blocks of a single query are selected like blocks of tokens: neighbours share a tile, whose lists are
// joined. On a GPU such calls use the program of selected attention.
//
// That program has lists by token; the lists of packed sequences, by sequence and token, are copied by a
// separate grid.
#pragma once
#include "ops/block_sparse/backward_call.hpp"
#include "ops/nsa/backward.hpp"

namespace tegula::ops {

// The same call of that program, where it has all that is asked for and is the faster way. That of packed
// sequences gets its lists when it runs.
std::optional<NsaCall> as_selection(const BlockSparseCall& call);
void attend_tokens(const NsaCall& selection, const BlockSparseCall& call, Launch& launch);

// And of the gradients.
std::optional<NsaBackwardCall> as_selection(const BlockSparseBackwardCall& call);
void differentiate_tokens(const NsaBackwardCall& selection, const BlockSparseBackwardCall& call,
                          Launch& launch);

}  // namespace tegula::ops
