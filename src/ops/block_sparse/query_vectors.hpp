// Delta and base of every query, which the pass over queries computes for the pass over keys.
#pragma once
#include "ops/block_sparse/sequences.hpp"

namespace tegula::ops {

// Heads that share tiles are side by side, so that a tile's numbers are one run, and rows are padded to whole
// tiles, so that they begin at multiples of 16 bytes: the copy engine brings them whatever the length is.
class QueryVectors {
 public:
  // Declares workspaces; `members` are the heads of a group.
  QueryVectors(const BlockSparseKernel& kernel, const BlockSparseSequences& sequences,
               const lang::Expr& members);

  // Views [tokens · pack] of one of the two vectors for a sequence: one in which tiles may access elements
  // past the end, and one of existing tokens only.
  lang::Tensor tiles(const lang::Tensor& vector, const HeadViews& of) const;
  lang::Tensor rows(const lang::Tensor& vector, const HeadViews& of) const;
  // Zeros after the last of a head, where they are among the delta_rows rows from `first` on.
  void clear_padding(const HeadViews& of, const lang::Expr& member, const lang::Expr& first) const;

 private:
  lang::Extents extents(const lang::Expr& members) const;
  lang::Tensor slice(const lang::Tensor& vector, const HeadViews& of, const lang::Subscript& some) const;

  const BlockSparseKernel& c;
  const BlockSparseSequences& sequences_;

 public:
  lang::Tensor delta, base;
};

}  // namespace tegula::ops
