#include "ops/pieces/splits.hpp"

#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int merged_at_once = 16;  // splits whose rows a block holds in registers

}  // namespace

SplitResults::SplitResults(const Expr& tokens, const Expr& heads, const Expr& splits, int dim_v)
    : splits_(splits),
      dim_v_(dim_v),
      out_(workspace("split_out", {tokens, heads, splits, dim_v}, f32)),
      lse_(workspace("split_lse", {heads, tokens, splits}, f32)) {}

Range SplitResults::steps(const Range& all, const Expr& split) const {
  Expr begin = all.begin, end = all.end, each = ceildiv(max(end - begin, 0), splits_),
       first = begin + split * each;
  return range(first, min(first + each, end));
}

Tensor SplitResults::out(const Range& rows, const Subscript& heads, const Expr& split) const {
  return out_.slice(rows, heads, split);
}

Tensor SplitResults::lse(const Range& rows, const Subscript& heads, const Expr& split) const {
  return lse_.slice(heads, rows, split);
}

Expr SplitResults::merge(const Expr& row, const Expr& head, const std::optional<Expr>& sink,
                         const Tensor& out) const {
  const Tensor results = out_.slice(row, head), lse_of = lse_.slice(head, row);
  Fragment weights = load(lse_of.at(0), {most_splits});
  parallel(weights, [&](Index i) { weights(i) = select(i < splits_, Expr(weights(i)), -inf); });
  Var top = reduce_max(weights).scalar();
  if (sink) top = max(top, *sink);
  const Var shift = select(top == -inf, 0, top);
  auto weight = [&](const Expr& own_lse) -> Expr { return exp2((own_lse - shift) * log2e); };
  parallel(weights, [&](Index i) { weights(i) = weight(weights(i)); });
  Var total = reduce_sum(weights).scalar();
  // A sink of ∞ leaves nothing of the splits.
  if (sink) total += select(*sink == inf, 1, weight(*sink));
  const Var factor = select(total == 0, 0, rcp(total));
  Fragment sum("sum", {dim_v_}, f32, 0);
  serial(ceildiv(splits_, merged_at_once), [&](Index n) {
    Fragment tile = load(results.at(n * merged_at_once), {merged_at_once, dim_v_}),
             tile_lse = load(lse_of.at(n * merged_at_once), {merged_at_once});
    // Rows behind the last split are zeros, and so would be their lse: no weight but 0 keeps them so.
    parallel(tile_lse, [&](Index i) {
      tile_lse(i) = select(n * merged_at_once + i < splits_, weight(tile_lse(i)) * factor, 0);
    });
    scale_rows(tile, tile_lse);
    reduce_sum(tile, sum, 0);
  });
  copy(sum, out.at(0));
  return select(total == 0, -inf, shift + log2(total) * ln2);
}

}  // namespace tegula::ops
