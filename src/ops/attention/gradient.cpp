#include "ops/attention/gradient.hpp"

#include "ops/common/softmax.hpp"

namespace tegula::ops {

using namespace lang;

void ScoreGradient::apply(Fragment& scores, Fragment& products, const Queries& queries, const Expr& partial,
                          const Of& counts) const {
  parallel(scores, [&](Index i, Index j) {
    if (cap) {
      Expr capped = tanh(scores(i, j) * scale);
      scores(i, j) = exp2(capped * (*cap * log2e) - queries.lse(i, j));
      products(i, j) = (products(i, j) - queries.delta(i, j)) * (1 - capped * capped);
    } else {
      scores(i, j) = exp2(scores(i, j) * scale - queries.lse(i, j));
      products(i, j) -= queries.delta(i, j);
    }
  });
  when(partial, [&] {
    parallel(scores, [&](Index i, Index j) { scores(i, j) = select(counts(i, j), scores(i, j), 0); });
  });
  parallel(products, [&](Index i, Index j) { products(i, j) *= scores(i, j); });
}

Expr ScoreGradient::factor() const { return cap ? scale * *cap : scale * ln2; }

void use_lse(Tile& lse) {
  parallel(lse, [&](Index i) {
    Expr value = lse(i);
    lse(i) = select(value == -inf, 0, value * log2e);
  });
}

void write_delta(const HeadRows& rows, const Expr& first) {
  Fragment product({delta_rows, rows.dim_v}, f32);
  Fragment gradient = load(rows.dout.at(first), {delta_rows, rows.dim_v}),
           value = load(rows.out.at(first), {delta_rows, rows.dim_v});
  parallel(product, [&](Index i, Index j) { product(i, j) = gradient(i, j) * value(i, j); });
  Fragment sum = reduce_sum(product);
  Fragment lse = load(rows.lse.at(first), {delta_rows});
  if (rows.dlse) {
    Fragment dlse = load(rows.dlse->at(first), {delta_rows});
    parallel(sum, [&](Index i) { sum(i) -= dlse(i); });
  }
  parallel(sum, [&](Index i) { sum(i) = select(lse(i) == -inf, 0, sum(i)); });
  copy(sum, rows.delta.at(first));
}

void scale_all(Fragment& x, const Expr& factor) {
  parallel(x, [&](Index i, Index j) { x(i, j) *= factor; });
}

}  // namespace tegula::ops
