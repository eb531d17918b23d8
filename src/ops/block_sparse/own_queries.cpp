#include "ops/block_sparse/own_queries.hpp"

namespace tegula::ops {

using namespace lang;

OwnQueries own_queries(const BlockSparseKernel& c, const Expr& x, const Expr& h, const Expr& queries,
                       const std::optional<Dim>& group) {
  Expr kv_head = group ? h / *group : h, member = group ? h % *group : Expr(Operand(0));
  Expr q_block = c.splits() == 1 ? x : x / c.splits();
  Expr first = c.splits() == 1 ? q_block * c.q_block : q_block * c.q_block + x % c.splits() * c.queries;
  const bool whole = c.q_block % c.queries == 0;
  Expr last = whole ? queries : min(min(q_block * c.q_block + c.q_block, first + c.queries), queries);
  exit_if(first >= last);
  return {kv_head, member, q_block, first, last, whole};
}

}  // namespace tegula::ops
