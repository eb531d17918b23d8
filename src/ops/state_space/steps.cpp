#include "ops/state_space/steps.hpp"

#include "ops/linear/gate_tiles.hpp"
#include "ops/state_space/softplus.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Kernel steps_kernel(const StepsKernel& c) {
  return kernel(instance_name("ssd_steps", c), [&] {
    Sequences s(c.packed);
    Dim heads("heads"), chunks("chunks");
    Tensor dt = input("dt", s.shape({heads}), c.dt), rates = input("A", {heads}, f32);
    Tensor bias = c.bias ? input("dt_bias", {heads}, f32) : rates;
    const Extents of_chunks = s.vectors(chunks, heads, c.rows());
    Tensor sums = output("sums", of_chunks, f32),
           weights = c.weights ? output("weights", of_chunks, f32) : sums;
    Tensor steps = c.steps ? output("steps", s.shape({heads}), f32) : sums;
    s.declare_chunks();
    each_gate_tile(s, heads, s.chunks(c.rows()), c.rows(), [&](const GateTiles& at) {
      Shared tile({at.rows, at.heads_of_tile}, f32), gates = at.turned();
      std::optional<Shared> turned;
      if (c.weights) turned.emplace(at.turned());
      copy(at.of_tokens(dt), tile);
      Var tokens = s.length(at.n) - at.row;
      parallel(tile, [&](Index i, Index h) {
        Var raw = c.bias ? tile(i, h) + bias(at.first + h) : Expr(tile(i, h));
        Var step = select(i < tokens, c.softplus ? softplus(raw) : Expr(raw), 0),
            gate = step * rates(at.first + h);
        assert_that(gate <= 0, "dt and A give logarithms of decays: at most 0");
        if (c.steps) tile(i, h) = step;
        if (turned) (*turned)(h, i) = step;
        gates(h, i) = gate * log2e;
      });
      if (c.steps) copy(tile, at.of_tokens(steps));
      if (turned) copy(*turned, at.of_chunks(weights));
      copy(scan_sum(gates), at.of_chunks(sums));
    });
  });
}

namespace {

constexpr int rows = 16;  // of a tile

struct Products {
  const StepProductsKernel& c;
  Dim batch{"batch"}, tokens{"tokens"}, heads{"heads"};

  explicit Products(const StepProductsKernel& kernel) : c(kernel) {}

  int width() const { return (c.p + 15) / 16 * 16; }
  Extents columns() const { return {batch, tokens, heads, c.p}; }
  Tensor values(const char* name) const { return input(name, columns(), c.type); }
  Tensor of_heads(const char* name, DType type) const { return input(name, {batch, tokens, heads}, type); }
  template <class F>
  void each(const F& body) const {
    grid(ceildiv(tokens, rows), heads, batch, [&](Index y, Index h, Index b) {
      body([&](const Tensor& t) { return t.slice(b, all, h).at(y * rows); }, h);
    });
  }
};

}  // namespace

Kernel step_values_kernel(const StepProductsKernel& c) {
  return kernel(instance_name("ssd_values", c), [&] {
    Products in(c);
    Tensor x = in.values("x"), steps = in.of_heads("steps", f32);
    Tensor z = c.gate ? in.values("z") : x, dout = c.gate ? in.values("dout") : x;
    Tensor y = c.gate ? in.values("y") : x, v = output("v", in.columns(), c.type);
    Tensor dy = c.gate ? output("dy", in.columns(), c.type) : v;
    Tensor dz = c.gate ? output("dz", in.columns(), c.type) : v;
    Tensor skips = c.gate ? output("skips", {in.batch, in.tokens, in.heads}, f32) : steps;
    in.each([&](const auto& window, const Expr&) {
      const auto values = [&](const Tensor& t) { return load(window(t), {rows, in.width()}, f32); };
      Fragment xs = values(x), own = load(window(steps), {rows});
      parallel(xs, [&](Index i, Index j) { xs(i, j) *= own(i); });
      copy(xs, window(v));
      if (!c.gate) return;
      Fragment zs = values(z), given = values(dout), ys = values(y);
      parallel(zs, [&](Index i, Index j) {
        Expr gate = zs(i, j), share = 1 / (1 + exp(-gate));
        ys(i, j) *= given(i, j) * share * (1 + gate * (1 - share));
        given(i, j) *= gate * share;
      });
      // Before dy is rounded: dD is a sum over all tokens.
      const Fragment unweighted = values(x);
      copy(reduce_sum(map(given, [&](Index i, Index j) { return given(i, j) * unweighted(i, j); })),
           window(skips));
      copy(given, window(dy));
      copy(ys, window(dz));
    });
  });
}

Kernel step_gradients_kernel(const StepProductsKernel& c) {
  return kernel(instance_name("ssd_step_gradients", c), [&] {
    Products in(c);
    Tensor x = in.values("x"), dt = in.of_heads("dt", c.dt), rates = input("A", {in.heads}, f32);
    Tensor steps = in.of_heads("steps", f32), dv = in.values("dv"), dy = c.states ? dv : in.values("dy");
    Tensor dgates = in.of_heads("dgates", f32);
    Tensor shares = c.skip ? input("D", {in.heads}, f32) : rates;
    Tensor skips = c.gate ? in.of_heads("skips", f32) : steps;
    Tensor bias = c.bias ? input("dt_bias", {in.heads}, f32) : rates;
    Tensor dx = output("dx", in.columns(), c.type);
    Tensor ddt = output("ddt", {in.batch, in.tokens, in.heads}, c.dt);
    Tensor of_tokens = output("parts", {3, in.batch, in.tokens, in.heads}, f32);
    in.each([&](const auto& window, const Expr& h) {
      const auto values = [&](const Tensor& t) { return load(window(t), {rows, in.width()}, f32); };
      const auto vector = [&](const Tensor& t) { return load(window(t), {rows}, f32); };
      Fragment xs = values(x), dvs = values(dv);
      std::optional<Fragment> dys, of_skip;
      if (!c.states) dys.emplace(values(dy));
      Fragment raw = vector(dt), own = vector(steps), gates = vector(dgates);
      if (c.gate)
        of_skip.emplace(vector(skips));
      else if (dys)
        of_skip.emplace(reduce_sum(map(xs, [&](Index i, Index j) { return xs(i, j) * (*dys)(i, j); })));
      Fragment of_step = reduce_sum(map(xs, [&](Index i, Index j) { return xs(i, j) * dvs(i, j); }));
      parallel(dvs, [&](Index i, Index j) {
        dvs(i, j) = c.skip ? dvs(i, j) * own(i) + shares(h) * (*dys)(i, j) : dvs(i, j) * own(i);
      });
      copy(dvs, window(dx));
      parallel(of_step, [&](Index i) {
        of_step(i) += rates(h) * gates(i);
        if (c.softplus) {
          Expr given = c.bias ? raw(i) + bias(h) : Expr(raw(i));
          of_step(i) *= 1 / (1 + exp(-given));
        }
        gates(i) *= own(i);
      });
      copy(of_step, window(ddt));
      copy(gates, window(of_tokens.slice(0)));
      if (of_skip) copy(*of_skip, window(of_tokens.slice(1)));
      copy(of_step, window(of_tokens.slice(2)));
    });
  });
}

}  // namespace tegula::ops
