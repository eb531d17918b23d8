#include "ops/pieces/gradient.hpp"

#include "ops/pieces/plan.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// The lse, times log2(e), from which its rounding matters, and the fraction by which it is lowered: an lse
// undergoes four roundings between the product of the largest score with the scale and the base of the
// weights.
constexpr float large = 0x1p14f, rounding = 0x1p-21f;

void scale_all(Fragment& x, const Expr& factor) {
  parallel(x, [&](Index i, Index j) { x(i, j) *= factor; });
}

void store_by_elements(const Fragment& tile, const Tensor& to, const Expr& first, int pack) {
  parallel(tile, [&](Index i, Index j) {
    if (pack == 1)
      to(first + i, j) = tile(i, j);
    else
      to(first + i / pack, i % pack, j) = tile(i, j);
  });
}

// Computes delta and base from the sums of dout · out and from lse.
void finish_delta(Fragment& delta, Fragment& base, const std::optional<Fragment>& dlse) {
  if (dlse) parallel(delta, [&](Index i) { delta(i) -= (*dlse)(i); });
  parallel(delta, [&](Index i) {
    Expr empty = base(i) == -inf;
    delta(i) = select(empty, 0, delta(i));
    base(i) = select(empty, 0, LargeScores::base(base(i) * log2e));
  });
}

// The products of dout and out. Two tiles of more features would not fit a thread's registers, so elements of
// `out` are multiplied where they are read.
Fragment output_products(const HeadRows& rows, const Expr& first) {
  constexpr int features_of_two_tiles = 256;
  const auto whole = [&](const Tensor& of) { return load(of.at(first), {delta_rows, rows.dim_v}); };
  Fragment product("product", {delta_rows, rows.dim_v}, f32);
  if (rows.dim_v > features_of_two_tiles) {
    copy(rows.dout.at(first), product);
    parallel(product, [&](Index i, Index j) { product(i, j) *= f32(rows.out(first + i, j)); });
  } else {
    Fragment gradient = whole(rows.dout), value = whole(rows.out);
    parallel(product, [&](Index i, Index j) { product(i, j) = gradient(i, j) * value(i, j); });
  }
  return product;
}

}  // namespace

LargeScores::LargeScores() : flag_(workspace("large_scores", {1}, i32, {.zero = true})) {}

Expr LargeScores::base(const Expr& scaled_lse) {
  Expr size = abs(scaled_lse);
  return select(size >= large && size < inf, scaled_lse - size * rounding, scaled_lse);
}

Expr LargeScores::any() const {
  const Var read = flag_(0) != 0;
  return read;
}

void LargeScores::note(const Fragment& bases) const {
  parallel(bases, [&](Index i) {
    Expr size = abs(bases(i));
    when(size >= large / 2 && size < inf, [&] { atomic_max(flag_(0), 1); });
  });
}

void LargeScores::note(const Tensor& lse, const Expr& first) const {
  Fragment rows = load(lse.at(first), {delta_rows});
  note(rows);
}

void ScoreGradient::weigh(Fragment& scores, Slopes& slopes, const Of& base, const Mask& mask,
                          const Expr& bounded) const {
  if (cap) {
    slopes.emplace(std::vector<int>{scores.extent(0), scores.extent(1)}, f32, Loc::current());
    parallel(scores, [&](Index i, Index j) {
      Expr capped = share_of_cap(scores(i, j), scale, kind_of_cap, compute);
      (*slopes)(i, j) = 1 - capped * capped;
      scores(i, j) = exp2(capped * (*cap * log2e) - base(i, j));
    });
  } else {
    parallel(scores, [&](Index i, Index j) { scores(i, j) = exp2(scores(i, j) * scale - base(i, j)); });
  }
  auto bound = [&](const Expr& weight) -> Expr { return min(weight, 1); };
  if (mask.partial) {
    when(*mask.partial || bounded, [&] {
      parallel(scores, [&](Index i, Index j) { scores(i, j) = bound(mask.weigh(i, j, scores(i, j))); });
    });
  } else {
    parallel(scores, [&](Index i, Index j) { scores(i, j) = mask.weigh(i, j, scores(i, j)); });
    when(bounded, [&] { parallel(scores, [&](Index i, Index j) { scores(i, j) = bound(scores(i, j)); }); });
  }
}

void ScoreGradient::differentiate(Fragment& products, const Fragment& weights, const Slopes& slopes,
                                  const Of& delta) const {
  parallel(products, [&](Index i, Index j) {
    Expr gradient = weights(i, j) * (products(i, j) - delta(i, j));
    products(i, j) = slopes ? gradient * (*slopes)(i, j) : gradient;
  });
}

Expr ScoreGradient::factor() const { return cap ? scale * *cap : scale * ln2; }

QueryGradient::QueryGradient(const GradientTiles& tiles, const ScoreGradient& gradient, const Tensor& q,
                             const Expr& first)
    : tiles_(tiles),
      gradient_(gradient),
      bounded_(gradient.large.any()),
      q_("q_tile", {tiles.rows(), tiles.dim}, tiles.compute),
      sum_("sum", {tiles.rows(), tiles.dim}, f32, 0) {
  load_queries(q, first, q_, tiles.pack);
}

QueryGradient::Branch::Branch(const GradientTiles& tiles, const Tensor& dout, const Tensor& base,
                              const Tensor& delta, const Expr& first)
    : dout_("dout_tile", {tiles.rows(), tiles.dim_v}, tiles.compute),
      base_("base_of", {tiles.rows()}, f32),
      delta_("delta_of", {tiles.rows()}, f32) {
  load_queries(dout, first, dout_, tiles.pack);
  load_vector(base, first, base_, tiles.pack);
  load_vector(delta, first, delta_, tiles.pack);
}

QueryGradient::Branch::Branch(const GradientTiles& tiles, const HeadRows& rows, const Expr& first)
    : dout_("dout_tile", {tiles.rows(), tiles.dim_v}, tiles.compute),
      base_("base_of", {tiles.rows()}, f32),
      delta_("delta_of", {tiles.rows()}, f32) {
  load_queries(rows.dout, first, dout_, tiles.pack);
  load_vector(rows.lse, first, base_, tiles.pack);
  // No shared memory: two blocks of one warp group leave none.
  Fragment product("product", {tiles.rows(), tiles.dim_v}, f32);
  load_queries(rows.out, first, product, tiles.pack);
  parallel(product, [&](Index i, Index j) { product(i, j) *= dout_(i, j); });
  clear(delta_);
  reduce_sum(product, delta_);
  std::optional<Fragment> dlse;
  if (rows.dlse) {
    dlse.emplace(std::vector<int>{tiles.rows()}, f32, Loc::current());
    load_vector(*rows.dlse, first, *dlse, tiles.pack);
  }
  finish_delta(delta_, base_, dlse);
  copy(delta_, rows.delta.at(first * tiles.pack));
  copy(base_, rows.base.at(first * tiles.pack));
}

namespace {

// Small tiles of rows are many blocks a processor, each of which multiplies by warps: a product with its
// operands exchanged would pass every weight through shared memory.
lang::GemmOptions by_rows(int rows) {
  lang::GemmOptions options;
  if (rows % warp_group_rows != 0) options.swap = false;
  return options;
}

}  // namespace

void QueryGradient::add(const Branch& branch, const Shared& k_tile, const Shared& v_tile,
                        const ScoreGradient::Mask& mask, const Observer& observer) {
  Fragment scores("scores", {tiles_.rows(), tiles_.keys}, f32, 0),
      products("products", {tiles_.rows(), tiles_.keys}, f32, 0);
  const lang::GemmOptions options = by_rows(tiles_.rows());
  gemm(q_, k_tile.T(), scores, options);
  gemm(branch.dout_, v_tile.T(), products, options);
  std::optional<Fragment> raw;
  if (observer) raw.emplace(clone(scores));
  ScoreGradient::Slopes slopes;
  gradient_.weigh(
      scores, slopes, [&](const Expr& r, const Expr&) -> Expr { return branch.base_(r); }, mask, bounded_);
  gradient_.differentiate(products, scores, slopes,
                          [&](const Expr& r, const Expr&) -> Expr { return branch.delta_(r); });
  if (observer) observer(*raw, products);
  add_product(products, k_tile, sum_, tiles_.compute, options);
}

void QueryGradient::store(const Tensor& dq, const Expr& first) {
  scale_all(sum_, gradient_.factor());
  if (tiles_.direct)
    store_by_elements(sum_, dq, first, tiles_.pack);
  else
    store_rows(sum_, dq, first, tiles_.pack);
}

KeyGradient::KeyGradient(const GradientTiles& tiles, const ScoreGradient& gradient, KeySums sums)
    : tiles_(tiles),
      gradient_(gradient),
      bounded_(gradient.large.any()),
      k_("k_tile", {tiles.keys, tiles.dim}, tiles.compute) {
  if (sums != KeySums::values) v_.emplace(Shared("v_tile", {tiles.keys, tiles.dim_v}, tiles.compute));
  if (sums != KeySums::values) dk_.emplace(Fragment("dk_sum", {tiles.keys, tiles.dim}, f32, 0));
  if (sums != KeySums::keys) dv_.emplace(Fragment("dv_sum", {tiles.keys, tiles.dim_v}, f32, 0));
  if (!tiles.late_contributions) return;
  late_.emplace(Shared("late_tile", {tiles.keys, tiles.rows()}, tiles.compute));
  clear(*late_);
}

void KeyGradient::load(const Tensor& k, const Tensor& v, const Expr& first) {
  copy(k.at(first), k_);
  if (v_) copy(v.at(first), *v_);
}

void KeyGradient::add(const Shared& q_tile, const Shared& dout_tile, const Shared& base, const Shared& delta,
                      const ScoreGradient::Mask& mask, const Receiver& receiver) {
  add(
      q_tile, dout_tile, [&](const Expr& column) -> Expr { return base(column); },
      [&](const Expr& column) -> Expr { return delta(column); }, mask, receiver);
}

void KeyGradient::add(const Shared& q_tile, const Shared& dout_tile, const OfColumn& base,
                      const OfColumn& delta, const ScoreGradient::Mask& mask, const Receiver& receiver) {
  Fragment scores("scores", {tiles_.keys, tiles_.rows()}, f32, 0);
  std::optional<Fragment> products;
  if (dk_) products.emplace(Fragment({tiles_.keys, tiles_.rows()}, f32, 0));
  const lang::GemmOptions options = by_rows(tiles_.keys);
  gemm(k_, q_tile.T(), scores, options);
  if (dk_) gemm(*v_, dout_tile.T(), *products, options);
  ScoreGradient::Slopes slopes;
  gradient_.weigh(
      scores, slopes, [&](const Expr&, const Expr& t) -> Expr { return base(t); }, mask, bounded_);
  if (!dk_) return add_product(scores, dout_tile, *dv_, tiles_.compute, options);
  auto differentiate = [&](const Fragment& weights) {
    const Work add_values = [&] {
      if (dv_) gemm(weights, dout_tile, *dv_, options);
    };
    // Gradients that are stored transposed leave no registers for it.
    const bool is_late = tiles_.late_values && receiver && !is_transposed();
    if (!is_late) add_values();
    std::optional<Fragment> before;
    if (late_) before.emplace(contribution_of(*late_));
    gradient_.differentiate(*products, weights, slopes,
                            [&](const Expr&, const Expr& t) -> Expr { return delta(t); });
    if (late_) {
      const Fragment gradients = products->to(tiles_.compute);
      copy(gradients, *late_);
      gemm(gradients, q_tile, *dk_, options);
      return receiver(*before);
    }
    const Work meanwhile = is_late ? add_values : Work([] {});
    if (tiles_.compute == f32)
      add_keys(*products, q_tile, receiver, meanwhile);
    else
      add_keys(products->to(tiles_.compute), q_tile, receiver, meanwhile);
  };
  // From the rounded weights where they are multiplied: both forms at once take too many registers.
  if (dv_ && tiles_.compute != f32)
    differentiate(scores.to(tiles_.compute));
  else
    differentiate(scores);
}

void KeyGradient::add_keys(const Fragment& gradients, const Shared& q_tile, const Receiver& receiver,
                           const Work& meanwhile) {
  const lang::GemmOptions options = by_rows(tiles_.keys);
  // One warp group alone has no registers for a product of keys in flight while it passes contributions on.
  const bool alone = tiles_.keys <= warp_group_rows;
  std::optional<Fragment> contribution;
  if (alone) gemm(gradients, q_tile, *dk_, options);
  if (receiver) contribution.emplace(contribute(gradients, meanwhile));
  if (!alone) gemm(gradients, q_tile, *dk_, options);
  if (receiver) receiver(is_transposed() ? contribution->T() : std::move(*contribution));
}

bool KeyGradient::is_transposed() const { return tiles_.rows() % warp_group_rows != 0; }

Fragment KeyGradient::contribute(const Fragment& gradients, const Work& meanwhile) const {
  const int rows = tiles_.rows(), dim = tiles_.dim;
  if (is_transposed()) {
    Shared tile("tile", {rows, tiles_.keys}, tiles_.compute);
    copy(gradients, tile.T());
    meanwhile();
    Fragment columns("columns", {dim, rows}, f32, 0);
    gemm(k_.T(), tile.T(), columns);
    return columns;
  }
  Shared tile("tile", {tiles_.keys, rows}, tiles_.compute);
  copy(gradients, tile);
  meanwhile();
  return contribution_of(tile);
}

Fragment KeyGradient::contribution_of(const Shared& tile) const {
  Fragment result("result", {tiles_.rows(), tiles_.dim}, f32, 0);
  gemm(tile.T(), k_, result);
  return result;
}

void KeyGradient::contribute_last(const Receiver& receiver) const { receiver(contribution_of(*late_)); }

void KeyGradient::store(const Tensor& dk, const Tensor& dv, const Expr& first) {
  if (dk_) scale_all(*dk_, gradient_.factor());
  if (tiles_.direct) return store_sums(dk, dv, first);
  if (dk_) copy(*dk_, dk.at(first));
  if (dv_) copy(*dv_, dv.at(first));
}

void KeyGradient::load_sums(const Tensor& dk, const Tensor& dv, const Expr& first) {
  if (dk_) copy(dk.at(first), *dk_);
  if (dv_) copy(dv.at(first), *dv_);
}

void KeyGradient::store_sums(const Tensor& dk, const Tensor& dv, const Expr& first) const {
  if (dk_) store_by_elements(*dk_, dk, first, 1);
  if (dv_) store_by_elements(*dv_, dv, first, 1);
}

void finish_sum(const Tensor& sum, const Tensor& dq, const Expr& first, int dim, const Expr& factor,
                const std::optional<Expr>& exists) {
  Fragment rows("rows", {delta_rows, dim}, f32, 0);
  if (exists)
    when(*exists, [&] { copy(sum.at(first), rows); });
  else
    copy(sum.at(first), rows);
  scale_all(rows, factor);
  copy(rows, dq.at(first));
}

void write_delta(const HeadRows& rows, const Expr& first) {
  Fragment sum = reduce_sum(output_products(rows, first));
  Fragment lse = load(rows.lse.at(first), {delta_rows});
  std::optional<Fragment> dlse;
  if (rows.dlse) dlse.emplace(load(rows.dlse->at(first), {delta_rows}));
  finish_delta(sum, lse, dlse);
  rows.large.note(lse);
  copy(sum, rows.delta.at(first));
  copy(lse, rows.base.at(first));
}

}  // namespace tegula::ops
