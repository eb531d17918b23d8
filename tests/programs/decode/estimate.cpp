// What a head looks at, estimated from its last 64 queries: the weights of every key summed over the queries
// (verticals) and along diagonals, by the distance from query to key (slashes). Two passes over the keys:
// lse, then weights.
#include "tests/programs/decode/attention.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct EstimateTile {
  int dim = 128, last = 64, block = 64, stages = 2;
  DType type = f16;
};

class Estimate {
 public:
  explicit Estimate(const EstimateTile& t)
      : t_(t),
        Q_(input("Q", {B_, H_, S_, t.dim}, t.type)),
        K_(input("K", {B_, H_, S_, t.dim}, t.type)),
        vertical_(output("vertical", {B_, H_, S_}, f32)),
        slash_(output("slash", {B_, H_, S_}, f32, {.zero = true})),
        scale_(scalar("scale", f32)),
        splits_(scalar("splits", i32)),
        lse_of_splits_(workspace("part", {B_, H_, splits_, t.last}, f32)) {}

  void record() const {
    grid(splits_, H_, B_, {.threads = 128}, [&](Index split, Index h, Index b) {
      OnlineSoftmax softmax(t_.last, scale_);
      pass(split, h, b, [&](const Expr&, Fragment& s) { Fragment unused = softmax.update(s); });
      copy(softmax.lse(), lse_of_splits_.slice(b, h, split).at(0));
    });
    grid(splits_, H_, B_, {.threads = 128}, [&](Index split, Index h, Index b) {
      Fragment top({t_.last}, f32, -inf), sum({t_.last}, f32, 0), lse({t_.last}, f32);
      serial(splits_, [&](Index i) {
        parallel(top, [&](Index r) { top(r) = max(top(r), lse_of_splits_(b, h, i, r)); });
      });
      serial(splits_, [&](Index i) {
        parallel(sum, [&](Index r) { sum(r) += exp(lse_of_splits_(b, h, i, r) - top(r)); });
      });
      parallel(lse, [&](Index r) { lse(r) = (top(r) + log(sum(r))) * log2e; });
      pass(split, h, b, [&](const Expr& j, Fragment& s) { add_weights(s, lse, j, h, b); });
    });
  }

 private:
  // work(step, scores) for the steps of a split.
  template <class Work>
  void pass(const Expr& split, const Expr& h, const Expr& b, Work work) const {
    Expr first_query = S_ - t_.last, steps = ceildiv(S_, t_.block), each = ceildiv(steps, splits_);
    Shared q({t_.last, t_.dim}, t_.type);
    copy(Q_.slice(b, h).at(first_query), q);
    pipelined(range(split * each, min(steps, (split + 1) * each)), {.stages = t_.stages}, [&](Index j) {
      Shared k({t_.block, t_.dim}, t_.type);
      copy(K_.slice(b, h).at(j * t_.block), k);
      Fragment s({t_.last, t_.block}, f32, 0);
      gemm(q, k.T(), s);
      parallel(
          s, [&](Index r, Index c) { s(r, c) = select(j * t_.block + c <= first_query + r, s(r, c), -inf); });
      work(j, s);
    });
  }
  void add_weights(Fragment& s, const Fragment& lse, const Expr& j, const Expr& h, const Expr& b) const {
    parallel(s, [&](Index r, Index c) { s(r, c) = exp2(s(r, c) * scale_ - lse(r)); });
    copy(reduce_sum(s, 0), vertical_.slice(b, h).at(j * t_.block));
    Shared diagonal({t_.last + t_.block}, f32);  // by row − column + block
    clear(diagonal);
    parallel(s, [&](Index r, Index c) { atomic_add(diagonal(r - c + t_.block), s(r, c)); });
    parallel(diagonal, [&](Index d) {
      Expr distance = S_ - t_.last - (j + 1) * t_.block + d;
      when(distance >= 0 && distance < S_, [&] { atomic_add(slash_(b, h, distance), diagonal(d)); });
    });
  }

  EstimateTile t_;
  Dim B_{"B"}, H_{"H"}, S_{"S"};
  Tensor Q_, K_, vertical_, slash_;
  Expr scale_, splits_;  // the scale times log2(e)
  Tensor lse_of_splits_;
};

Kernel estimate_of(const EstimateTile& t) {
  return kernel("slash_estimate", [&] { Estimate(t).record(); });
}

Prepared estimate_call() {
  const EstimateTile t{.dim = 64};
  const int H = 2, S = 200;
  const double scale = 0.125;
  const Data q = normal({1, H, S, t.dim}, f16, 1), k = normal({1, H, S, t.dim}, f16, 2);
  const Numbers Q(q), K(k);
  Numbers vertical({1, H, S}), slash({1, H, S});
  each(H, t.last, [&](int h, int i) {
    const int query = S - t.last + i;
    std::vector<double> weights;
    each(query + 1, [&](int key) {
      const double dot = sum_of(t.dim, [&](int d) { return Q(0, h, query, d) * K(0, h, key, d); });
      weights.push_back(std::exp(scale * dot));
    });
    const double total = sum_of(query + 1, [&](int key) { return weights[key]; });
    each(query + 1, [&](int key) {
      vertical(0, h, key) += weights[key] / total;
      slash(0, h, query - key) += weights[key] / total;
    });
  });
  return {estimate_of(t),
          {q, k, Wanted{vertical, f32, 1e-3}, Wanted{slash, f32, 1e-3}, scale * log2_of_e, 2}};
}

}  // namespace

Program slash_estimate() {
  return {"decode",
          "slash_estimate",
          "sums of the last queries' weights by key and by distance",
          {{"", estimate_call}},
          {{"64 x 64, features of 128", [] { return estimate_of({}); }}}};
}

}  // namespace programs
