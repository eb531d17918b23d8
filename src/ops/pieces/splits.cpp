#include "ops/pieces/splits.hpp"

#include <vector>

#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Splits whose rows a block holds in registers, in tiles of so many rows that most of them are whole.
constexpr int merged_at_once = 16, rows_of_part = 4;

}  // namespace

SplitResults::SplitResults(const Expr& tokens, const Expr& heads, const Expr& splits, int dim_v)
    : splits_(splits),
      dim_v_(dim_v),
      out_(workspace("split_out", {tokens, heads, splits, dim_v}, f32)),
      lse_(workspace("split_lse", {heads, tokens, splits}, f32)) {}

Range SplitResults::steps(const Range& all, const Expr& split, const Expr& splits) {
  Expr begin = all.begin, end = all.end;
  const Var each = ceildiv(max(end - begin, 0), max(splits, 1)), first = begin + split * each,
            last = min(first + each, end);
  return range(first, last);
}

Tensor SplitResults::out(const Range& rows, const Subscript& heads, const Expr& split) const {
  return out_.slice(rows, heads, split);
}

Tensor SplitResults::lse(const Range& rows, const Subscript& heads, const Expr& split) const {
  return lse_.slice(heads, rows, split);
}

Expr SplitResults::merge(const Expr& row, const Expr& head, const Range& own, const std::optional<Expr>& sink,
                         const Tensor& out) const {
  const Tensor results = out_.slice(row, head).slice(own, all), lse_of = lse_.slice(head, row).slice(own);
  Expr begin = own.begin, end = own.end, splits = end - begin;
  struct Rows {
    Expr first;
    Fragment values, lse;
  };
  const auto rows_from = [&](const Expr& n) {
    std::vector<Rows> rows;
    for (int i = 0; i < merged_at_once; i += rows_of_part) {
      Expr first = n * merged_at_once + i;
      rows.push_back(
          {first, load(results.at(first), {rows_of_part, dim_v_}), load(lse_of.at(first), {rows_of_part})});
    }
    return rows;
  };
  // The first rows are on their way while the weights of all splits are computed.
  std::vector<Rows> first_rows = rows_from(0);
  Fragment weights = load(lse_of.at(0), {most_splits});
  parallel(weights, [&](Index i) { weights(i) = select(i < splits, Expr(weights(i)), -inf); });
  Var top = reduce_max(weights).scalar();
  if (sink) top = max(top, *sink);
  const Var shift = select(top == -inf, 0, top);
  auto weight = [&](const Expr& own_lse) -> Expr { return exp2((own_lse - shift) * log2e); };
  parallel(weights, [&](Index i) { weights(i) = weight(weights(i)); });
  Var total = reduce_sum(weights).scalar();
  // A sink of ∞ leaves nothing of the splits.
  if (sink) total += select(*sink == inf, 1, weight(*sink));
  const Var factor = select(total == 0, 0, rcp(total));
  Fragment sums("sums", {rows_of_part, dim_v_}, f32, 0);
  const auto add = [&](std::vector<Rows>& rows) {
    for (Rows& own : rows) {
      // Rows behind the last split are zeros, and so would be their lse: no weight but 0 keeps them so.
      parallel(own.lse,
               [&](Index i) { own.lse(i) = select(own.first + i < splits, weight(own.lse(i)) * factor, 0); });
      parallel(sums, [&](Index i, Index j) { sums(i, j) += own.values(i, j) * own.lse(i); });
    }
  };
  add(first_rows);
  serial(range(1, ceildiv(splits, merged_at_once)), [&](Index n) {
    std::vector<Rows> rows = rows_from(n);
    add(rows);
  });
  copy(reduce_sum(sums, 0), out.at(0));
  return select(total == 0, -inf, shift + log2(total) * ln2);
}

}  // namespace tegula::ops
