#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

void assert_queries(const Expr& count, const Expr& most) {
  assert_that(count <= most, "a sequence has more queries than max_seqlen_q");
}

void assert_keys(const Expr& count, const Expr& most) {
  assert_that(count <= most, "a sequence has more keys than max_seqlen_k");
}

Extents joined(const Extents& first, const Extents& second) {
  Extents all_extents;
  for (const Extents* extents : {&first, &second})
    for (const Operand& extent : *extents) all_extents.push_back(extent);
  return all_extents;
}

Tensor HeadViews::of_queries(const Tensor& t) const {
  return rows.packed ? t.slice(rows.queries, kv_head, member)
                     : t.slice(rows.b, rows.queries, kv_head, member);
}

Tensor HeadViews::of_keys(const Tensor& t) const {
  return rows.packed ? t.slice(rows.keys, kv_head) : t.slice(rows.b, rows.keys, kv_head);
}

Tensor HeadViews::vector(const Tensor& t) const {
  return rows.packed ? t.slice(kv_head, member, rows.queries)
                     : t.slice(rows.b, kv_head, member, rows.queries);
}

}  // namespace tegula::ops
