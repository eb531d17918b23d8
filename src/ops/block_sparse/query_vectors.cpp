#include "ops/block_sparse/query_vectors.hpp"

#include "ops/pieces/gradient.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

QueryVectors::QueryVectors(const BlockSparseKernel& kernel, const BlockSparseSequences& sequences,
                           const Expr& members)
    : c(kernel),
      sequences_(sequences),
      delta(workspace("delta", extents(members), f32)),
      base(workspace("base", extents(members), f32)) {}

Extents QueryVectors::extents(const Expr& members) const {
  Expr tokens = ceildiv(sequences_.queries, delta_rows) * delta_rows;
  if (c.pack > 1) return joined(sequences_.batches(), {sequences_.heads, tokens * c.pack});
  return joined(sequences_.batches(), {sequences_.heads, members, tokens});
}

Tensor QueryVectors::slice(const Tensor& vector, const HeadViews& of, const Subscript& some) const {
  if (c.pack > 1)
    return c.varlen ? vector.slice(of.kv_head, some) : vector.slice(of.rows.b, of.kv_head, some);
  return c.varlen ? vector.slice(of.kv_head, of.member, some)
                  : vector.slice(of.rows.b, of.kv_head, of.member, some);
}

Tensor QueryVectors::tiles(const Tensor& vector, const HeadViews& of) const {
  return c.varlen ? rows(vector, of) : slice(vector, of, all);
}

Tensor QueryVectors::rows(const Tensor& vector, const HeadViews& of) const {
  const Range& own = of.rows.queries;
  return slice(vector, of, c.pack > 1 ? range(own.begin * c.pack, own.end * c.pack) : own);
}

void QueryVectors::clear_padding(const HeadViews& of, const Expr& member, const Expr& first) const {
  Tensor own_delta = slice(delta, of, all), own_base = slice(base, of, all);
  when(first + delta_rows > sequences_.queries, [&] {
    parallel(delta_rows, [&](Index i) {
      Expr row = first + i, at = c.pack > 1 ? row * c.pack + member : row;
      when(row >= sequences_.queries, [&] {
        own_delta(at) = 0.f;
        own_base(at) = 0.f;
      });
    });
  });
}

}  // namespace tegula::ops
