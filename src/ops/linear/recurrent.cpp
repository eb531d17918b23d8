#include "ops/linear/recurrent.hpp"

#include "ops/linear/unit_rows.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

class Recurrence {
 public:
  explicit Recurrence(const RecurrentKernel& kernel)
      : c(kernel),
        q(input("q", s.shape({key_heads, c.d}), c.type)),
        k(input("k", s.shape({key_heads, c.d}), c.type)),
        v(input("v", s.shape({heads, c.d_v - (c.ones ? 1 : 0)}), c.type)),
        g(c.g ? input("g", c.by_feature ? s.shape({heads, c.d}) : s.shape({heads}), *c.g) : q),
        g_gamma(c.g_gamma ? input("g_gamma", {heads}, *c.g_gamma) : q),
        beta(c.beta ? input("beta", s.shape({heads}), *c.beta) : q),
        start(c.first ? input("initial_state", {sequences, heads, c.d, c.d_v}, f32) : q),
        scale(scalar("scale", f32)),
        out(output("out", s.shape({heads, c.d_v}), c.result)),
        end(c.last ? output("final_state", {sequences, heads, c.d, c.d_v}, f32) : out) {
    s.declare();
  }

  void run() const {
    grid(ceildiv(c.d_v, c.block), heads, s.count(), [&](Index x, Index h, Index n) {
      Expr column = x * c.block;
      Fragment state({features(), c.block}, f32, 0);
      if (c.first) copy(start.slice(n, h).at(0, column), state);
      serial(s.length(n), [&](Index t) { step(state, n, h, t, column); });
      if (c.last) copy(state, end.slice(n, h).at(0, column));
    });
  }

 private:
  int features() const { return (c.d + 15) / 16 * 16; }

  // Of a token. All is loaded before threads wait for each other, so that they wait for memory once.
  struct Token {
    Fragment q, k, v;
    std::optional<Fragment> gates;
    std::optional<Var> share;
    Token(const Recurrence& r, const Expr& n, const Expr& h, const Expr& t, const Expr& column)
        : q(r.key(r.q, n, h, t)),
          k(r.key(r.k, n, h, t)),
          v(load(r.s.head(r.v, n, h).slice(t).at(column), {r.c.block}, f32)) {
      if (r.c.ones) parallel(v, [&](Index j) { v(j) = select(column + j == r.c.d_v - 1, 1, v(j)); });
      if (r.c.by_feature) gates.emplace(load(r.s.head(r.g, n, h).slice(t).at(0), {r.features()}, f32));
      if (r.c.beta) share.emplace(f32(r.s.head(r.beta, n, h)(t)));
    }
  };
  Fragment key(const Tensor& of, const Expr& n, const Expr& h, const Expr& t) const {
    return load(s.head(of, n, h / (Expr(heads) / key_heads)).slice(t).at(0), {features()}, f32);
  }

  // Gates of features become decays. Sums and the largest gate meet at once.
  void prepare(Token& own) const {
    std::vector<Fragment> squares, found;
    if (c.unit)
      for (const Fragment* x : {&own.q, &own.k})
        squares.push_back(map(*x, [&](Index i) { return (*x)(i) * (*x)(i); }));
    for (const Fragment& x : squares) found.push_back(reduce_sum(x));
    if (own.gates) found.push_back(reduce_max(*own.gates));
    if (c.unit) {
      const Var of_q = rsqrt(found[0].scalar() + least_norm), of_k = rsqrt(found[1].scalar() + least_norm);
      parallel(own.q, [&](Index i) { own.q(i) *= of_q, own.k(i) *= of_k; });
    }
    if (!own.gates) return;
    assert_that(found.back().scalar() <= 0, "g are logarithms of decays: at most 0");
    parallel(*own.gates, [&](Index i) { (*own.gates)(i) = exp((*own.gates)(i)); });
  }

  void step(Fragment& state, const Expr& n, const Expr& h, const Expr& t, const Expr& column) const {
    Token own(*this, n, h, t, column);
    prepare(own);
    if (own.gates) {
      parallel(state, [&](Index i, Index j) { state(i, j) *= (*own.gates)(i); });
    } else if (c.g || c.g_gamma) {
      Expr own_g = c.g ? Expr(f32(s.head(g, n, h)(t))) : Expr(f32(0));
      Expr gate = c.g_gamma ? own_g + f32(g_gamma(h)) : own_g, factor = exp(gate);
      assert_that(gate <= 0, "g and g_gamma are logarithms of decays: at most 0");
      parallel(state, [&](Index i, Index j) { state(i, j) *= factor; });
    }
    if (c.beta) {
      Fragment seen = reduce_sum(map(state, [&](Index i, Index j) { return state(i, j) * own.k(i); }), 0);
      parallel(own.v, [&](Index j) { own.v(j) = *own.share * (own.v(j) - seen(j)); });
    }
    parallel(state, [&](Index i, Index j) { state(i, j) += own.k(i) * own.v(j); });
    Fragment o = reduce_sum(map(state, [&](Index i, Index j) { return state(i, j) * own.q(i); }), 0);
    parallel(o, [&](Index j) { o(j) *= scale; });
    copy(o, s.head(out, n, h).slice(t).at(column));
  }

  const RecurrentKernel& c;
  Sequences s{c.packed};
  Dim key_heads{"key_heads"}, heads{"heads"};
  LazyDim sequences{"sequences"};
  Tensor q, k, v, g, g_gamma, beta, start;
  Expr scale;
  Tensor out, end;
};

}  // namespace

Kernel recurrent_kernel(const RecurrentKernel& c) {
  return kernel(instance_name("recurrent", c), [&] { Recurrence(c).run(); });
}

}  // namespace tegula::ops
