#include "ops/linear/recurrent.hpp"

#include "ops/linear/unit_rows.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

void make_unit(Fragment& x) {
  Expr sum = reduce_sum(map(x, [&](Index i) { return x(i) * x(i); })).scalar();
  Expr factor = rsqrt(sum + least_norm);
  parallel(x, [&](Index i) { x(i) *= factor; });
}

class Recurrence {
 public:
  explicit Recurrence(const RecurrentKernel& kernel)
      : c(kernel),
        q(input("q", s.shape({key_heads, c.d}), c.type)),
        k(input("k", s.shape({key_heads, c.d}), c.type)),
        v(input("v", s.shape({heads, c.d_v - (c.ones ? 1 : 0)}), c.type)),
        g(c.g ? input("g", s.shape({heads}), *c.g) : q),
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

  void step(Fragment& state, const Expr& n, const Expr& h, const Expr& t, const Expr& column) const {
    Expr key_head = h / (Expr(heads) / key_heads);
    Fragment own_q = load(s.head(q, n, key_head).slice(t).at(0), {features()}, f32);
    Fragment own_k = load(s.head(k, n, key_head).slice(t).at(0), {features()}, f32);
    Fragment own_v = load(s.head(v, n, h).slice(t).at(column), {c.block}, f32);
    if (c.ones)
      parallel(own_v, [&](Index j) { own_v(j) = select(column + j == c.d_v - 1, 1, own_v(j)); });
    if (c.unit) make_unit(own_q), make_unit(own_k);
    if (c.g || c.g_gamma) {
      Expr own_g = c.g ? Expr(f32(s.head(g, n, h)(t))) : Expr(f32(0));
      Expr gate = c.g_gamma ? own_g + f32(g_gamma(h)) : own_g, factor = exp(gate);
      assert_that(gate <= 0, "g and g_gamma are logarithms of decays: at most 0");
      parallel(state, [&](Index i, Index j) { state(i, j) *= factor; });
    }
    if (c.beta) {
      Expr share = f32(s.head(beta, n, h)(t));
      Fragment seen = reduce_sum(map(state, [&](Index i, Index j) { return state(i, j) * own_k(i); }), 0);
      parallel(own_v, [&](Index j) { own_v(j) = share * (own_v(j) - seen(j)); });
    }
    parallel(state, [&](Index i, Index j) { state(i, j) += own_k(i) * own_v(j); });
    Fragment o = reduce_sum(map(state, [&](Index i, Index j) { return state(i, j) * own_q(i); }), 0);
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
