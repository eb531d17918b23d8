// The queries of a block of the grid: all or some of a block of queries, for one head or those of a group.
#pragma once
#include <optional>

#include "ops/block_sparse/kernel.hpp"

namespace tegula::ops {

struct OwnQueries {
  lang::Expr kv_head, member;  // of the group; 0 where its heads share the tile
  lang::Expr q_block;
  lang::Expr first, last;  // its queries; `last`, one past it, is that of all where tiles are whole
  bool whole;              // only the end of all queries can make it short

  // Rows that a view of its queries has, and where its own begin among them.
  lang::Range rows() const { return {whole ? lang::Expr(lang::Operand(0)) : first, last}; }
  lang::Expr start() const { return whole ? first : lang::Expr(lang::Operand(0)); }
};

// The queries of block x of head h; ends the block if there are none. `group` is given if heads have separate
// tiles.
OwnQueries own_queries(const BlockSparseKernel& c, const lang::Expr& x, const lang::Expr& h,
                       const lang::Expr& queries, const std::optional<lang::Dim>& group);

}  // namespace tegula::ops
