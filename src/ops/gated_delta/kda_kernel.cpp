#include "ops/gated_delta/kda_kernel.hpp"

#include "ops/gated_delta/factors.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// A chunk: with G the gates summed from its first token on, scores are (q e^(G − m)) (k e^(m − G))ᵀ, whose
// factors stay near 1 where m is half of what a feature fades by in the chunk.
class KdaChunk {
 public:
  explicit KdaChunk(const KdaKernel& kernel)
      : c(kernel),
        q({c.rows, c.features()}, c.type),
        k({c.rows, c.features()}, c.type),
        v({c.rows, c.block}, c.type),
        gates({c.rows, c.features()}, f32),
        betas({c.rows}, f32) {}

  void sum_gates() {
    parallel(c.features(), [&](Index i) {
      Var sum = 0.0f;
      serial(c.rows, [&](Index t) {
        Expr gate = gates(t, i);
        assert_that(gate <= 0 && gate >= least_gate, "g are logarithms of decays: -5 to 0");
        sum += gate;
        gates(t, i) = sum;
      });
    });
  }

  // The results of the chunk, and what the state becomes.
  Fragment pass(Fragment& state, const Expr& scale) {
    Fragment a = scores(k), p = scores(q);
    Shared lower({c.rows, c.rows}, f32), whole({c.rows, c.rows}, f32), inverse({c.rows, c.rows}, c.type);
    parallel(a, [&](Index i, Index j) { lower(i, j) = select(i > j, a(i, j) * betas(i), 0); });
    invert_lower(lower, whole);
    copy(whole, inverse);
    Shared rounded({c.features(), c.block}, c.type), right({c.rows, c.block}, c.type);
    copy(state, rounded);
    Fragment seen({c.rows, c.block}, f32, 0), o({c.rows, c.block}, f32, 0), u({c.rows, c.block}, f32, 0);
    Shared faded_k = faded(k), faded_q = faded(q);
    gemm(faded_k, rounded, seen);
    gemm(faded_q, rounded, o);
    parallel(seen, [&](Index i, Index j) { right(i, j) = betas(i) * (f32(v(i, j)) - seen(i, j)); });
    gemm(inverse, right, u);
    Shared written({c.rows, c.block}, c.type);
    copy(u, written);
    parallel(p, [&](Index i, Index j) { p(i, j) = select(i >= j, p(i, j), 0); });
    gemm(p.to(c.type), written, o);
    parallel(o, [&](Index i, Index j) { o(i, j) *= scale; });
    Shared kept({c.rows, c.features()}, c.type);
    parallel(kept, [&](Index t, Index i) { kept(t, i) = f32(k(t, i)) * exp(total(i) - gates(t, i)); });
    parallel(state, [&](Index i, Index j) { state(i, j) *= exp(total(i)); });
    gemm(kept.T(), written, state);
    return o;
  }

  const KdaKernel& c;
  Shared q, k, v, gates, betas;

 private:
  Expr total(const Expr& i) const { return gates(c.rows - 1, i); }
  // x kᵀ with the decay from the token of k to that of x.
  Fragment scores(const Shared& x) const {
    Shared left({c.rows, c.features()}, c.wide()), right({c.rows, c.features()}, c.wide());
    parallel(left, [&](Index t, Index i) {
      Expr from_middle = gates(t, i) - total(i) * 0.5f;
      left(t, i) = f32(x(t, i)) * exp(from_middle);
      right(t, i) = f32(k(t, i)) * exp(-from_middle);
    });
    Fragment result({c.rows, c.rows}, f32, 0);
    gemm(left, right.T(), result);
    return result;
  }
  Shared faded(const Shared& x) const {
    Shared result({c.rows, c.features()}, c.type);
    parallel(result, [&](Index t, Index i) { result(t, i) = f32(x(t, i)) * exp(gates(t, i)); });
    return result;
  }
};

}  // namespace

Kernel kda_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda", c), [&] {
    Sequences s(c.packed);
    Dim key_heads("key_heads"), heads("heads");
    LazyDim sequences("sequences");
    Tensor q = input("q", s.shape({key_heads, c.d}), c.type),
           k = input("k", s.shape({key_heads, c.d}), c.type);
    Tensor v = input("v", s.shape({heads, c.d_v}), c.type), g = input("g", s.shape({heads, c.d}), f32);
    Tensor beta = input("beta", s.shape({heads}), c.beta);
    const auto ends = [&] { return Extents{sequences, heads, c.d, c.d_v}; };
    Tensor start = c.first ? input("initial_state", ends(), f32) : q;
    Expr scale = scalar("scale", f32);
    Tensor out = output("out", s.shape({heads, c.d_v}), c.type);
    Tensor end = c.last ? output("final_state", ends(), f32) : out;
    s.declare();
    grid(ceildiv(c.d_v, c.block), heads, s.count(), [&](Index x, Index h, Index n) {
      Expr column = x * c.block, key_head = h / (Expr(heads) / key_heads);
      Fragment state({c.features(), c.block}, f32, 0);
      if (c.first) copy(start.slice(n, h).at(0, column), state);
      pipelined(ceildiv(s.length(n), c.rows), {.stages = 2}, [&](Index chunk) {
        Expr row = chunk * c.rows;
        KdaChunk own(c);
        copy(s.head(q, n, key_head).at(row), own.q);
        copy(s.head(k, n, key_head).at(row), own.k);
        copy(s.head(v, n, h).at(row, column), own.v);
        copy(s.head(g, n, h).at(row), own.gates);
        copy(s.head(beta, n, h).at(row), own.betas);
        own.sum_gates();
        Fragment o = own.pass(state, scale);
        copy(o, s.head(out, n, h).at(row, column));
      });
      if (c.last) copy(state, end.slice(n, h).at(0, column));
    });
  });
}

}  // namespace tegula::ops
