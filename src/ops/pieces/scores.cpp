#include "ops/pieces/scores.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

ScoreRange::ScoreRange(const Expr& position, int queries, const Expr& count, const Expr& keys,
                       const std::optional<Expr>& left, const std::optional<Expr>& right)
    : position_(position), queries_(queries), count_(count), keys_(keys), left_(left), right_(right) {}

Expr ScoreRange::end() const {
  if (!right_) return keys_;
  return clamp(position_ + min(count_, queries_) + *right_, 0, keys_);
}

Range ScoreRange::tiles(int keys_of_tile) const {
  Expr begin = left_ ? clamp(position_ - *left_, 0, keys_) / keys_of_tile : Expr(Operand(0));
  return range(begin, ceildiv(end(), keys_of_tile));
}

Expr ScoreRange::is_partial(const Expr& first, int keys_of_tile) const {
  Expr beyond = first + keys_of_tile > limit(Operand(0));
  return left_ ? beyond || first < position_ + (queries_ - 1) - *left_ : beyond;
}

Expr ScoreRange::sees(const Expr& query, const Expr& key) const {
  Expr before = key < limit(query);
  return left_ ? before && key >= position_ + query - *left_ : before;
}

Expr ScoreRange::limit(const Expr& query) const {
  return right_ ? min(keys_, position_ + query + *right_ + 1) : keys_;
}

void add_product(const Fragment& weights, const Shared& values, Fragment& sum, DType type,
                 const lang::GemmOptions& options) {
  if (type == f32)
    gemm(weights, values, sum, options);
  else
    gemm(weights.to(type), values, sum, options);
}

Expr key_at(const Expr& position) {
  Expr first = position / 16 * 16, four = position % 16 / 4, pair = position % 4 / 2;
  return first + pair * 8 + four * 2 + position % 2;
}

Fragment byte_weights(const Fragment& weights, DType type) {
  const int rows = weights.extent(0), keys = weights.extent(1), runs = rows * keys / 16;
  Fragment result("result", {rows, keys}, type);
  const Fragment from = weights.reshape({runs, 2, 4, 2});
  Fragment to = result.reshape({runs, 4, 2, 2});
  parallel(runs, 4, 2, [&](Index run, Index four, Index e) {
    for (int pair = 0; pair < 2; ++pair) to(run, four, pair, e) = from(run, pair, four, e);
  });
  return result;
}

void store_rows(const Fragment& tile, const Tensor& to, const Expr& first, int pack) {
  if (pack == 1)
    copy(tile, to.at(first));
  else
    copy(tile.reshape({tile.extent(0) / pack, pack, tile.extent(1)}), to.at(first));
}

void store_lse(const Fragment& lse, const Tensor& to, const Expr& first, int pack) {
  if (pack == 1)
    copy(lse, to.at(first));
  else
    copy(lse.reshape({lse.extent(0) / pack, pack}).T(), to.at(0, first));
}

}  // namespace tegula::ops
