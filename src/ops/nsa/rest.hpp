// What tiles of tokens leave out: blocks that few of their tokens selected.
//
// nsa_kernel sorts such pairs of a token and a block by blocks, part by part of the tokens. Here the blocks
// of keys meet the queries of their lists, whose results go to slots; then every token adds its slots to what
// its tile has found. A call is for one part, so that slots take no more memory than they may.
#pragma once
#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/kernel.hpp"

namespace tegula::ops {

struct NsaRestKernel {
  NsaKernel forward;
  auto fields() const { return std::tuple(forward); }
};

// Arguments: q, k, v of the part as in nsa_kernel, out and lse as that left them, out and lse (the same, or
// others, of which only the tiles are written that left something out), scale, the number of tokens
// behind the part, its number, the number of parts, the tokens of one and of all; then what nsa_kernel made,
// of all parts.
lang::Kernel nsa_rest_kernel(const NsaRestKernel& instance);

// As whose lists the pairs are sorted; lists of more pairs are cut.
NsaKernel lists_of_rest(const NsaKernel& forward);
int longest_of_rest(const NsaKernel& forward);

}  // namespace tegula::ops
