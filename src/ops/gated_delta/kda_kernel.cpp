#include "ops/gated_delta/kda_kernel.hpp"

#include "ops/gated_delta/kda_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

void KdaInputs::load(KdaChunk& chunk, const Expr& n, const Expr& h, const Expr& row) const {
  copy(s.head(q, n, key_head(h)).at(row), chunk.q);
  copy(s.head(k, n, key_head(h)).at(row), chunk.k);
  copy(s.head(g, n, h).at(row), chunk.gates);
  copy(s.head(beta, n, h).at(row), chunk.betas);
}

void KdaChunk::sum_gates() {
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

Shared KdaChunk::towards(const Shared& x) const {
  Shared result({c.rows, c.features()}, c.wide());
  parallel(result, [&](Index t, Index i) { result(t, i) = f32(x(t, i)) * exp(from_middle(t, i)); });
  return result;
}

Shared KdaChunk::away() const {
  Shared result({c.rows, c.features()}, c.wide());
  parallel(result, [&](Index t, Index i) { result(t, i) = f32(k(t, i)) * exp(-from_middle(t, i)); });
  return result;
}

Shared KdaChunk::faded(const Shared& x) const {
  Shared result({c.rows, c.features()}, c.type);
  parallel(result, [&](Index t, Index i) { result(t, i) = f32(x(t, i)) * exp(gates(t, i)); });
  return result;
}

Shared KdaChunk::kept() const {
  Shared result({c.rows, c.features()}, c.type);
  parallel(result, [&](Index t, Index i) { result(t, i) = f32(k(t, i)) * exp(total(i) - gates(t, i)); });
  return result;
}

Fragment KdaChunk::scores(const Shared& left, const Shared& right) const {
  Fragment result({c.rows, c.rows}, f32, 0);
  gemm(left, right.T(), result);
  return result;
}

Shared KdaChunk::inverse(const Shared& left, const Shared& right) const {
  Fragment a = scores(left, right);
  Shared lower({c.rows, c.rows}, f32), whole({c.rows, c.rows}, f32), rounded({c.rows, c.rows}, c.type);
  parallel(a, [&](Index i, Index j) { lower(i, j) = select(i > j, a(i, j) * betas(i), 0); });
  invert_lower(lower, whole);
  copy(whole, rounded);
  return rounded;
}

namespace {

// What a chunk writes into the state.
Shared written_by(const KdaChunk& own, const Shared& v, const Shared& rounded, const Shared& away) {
  const KdaKernel& c = own.c;
  Shared inverse = own.inverse(own.towards(own.k), away), faded = own.faded(own.k);
  Shared right({c.rows, c.block}, c.type), written({c.rows, c.block}, c.type);
  Fragment seen({c.rows, c.block}, f32, 0), u({c.rows, c.block}, f32, 0);
  gemm(faded, rounded, seen);
  parallel(seen, [&](Index i, Index j) { right(i, j) = own.betas(i) * (f32(v(i, j)) - seen(i, j)); });
  gemm(inverse, right, u);
  copy(u, written);
  return written;
}

Fragment results_of(const KdaChunk& own, const Shared& rounded, const Shared& away, const Shared& written,
                    const Expr& scale) {
  const KdaKernel& c = own.c;
  Shared faded = own.faded(own.q);
  Fragment p = own.scores(own.towards(own.q), away), o({c.rows, c.block}, f32, 0);
  parallel(p, [&](Index i, Index j) { p(i, j) = select(i >= j, p(i, j), 0); });
  gemm(faded, rounded, o);
  gemm(p.to(c.type), written, o);
  parallel(o, [&](Index i, Index j) { o(i, j) *= scale; });
  return o;
}

void pass(const KdaChunk& own, const Shared& written, Fragment& state) {
  Shared kept = own.kept();
  parallel(state, [&](Index i, Index j) { state(i, j) *= exp(own.total(i)); });
  gemm(kept.T(), written, state);
}

}  // namespace

Kernel kda_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda", c), [&] {
    KdaInputs in(c);
    Sequences& s = in.s;
    Tensor v = input("v", in.columns(), c.type);
    Tensor start = c.first ? input("initial_state", in.ends(), f32) : v;
    std::optional<Expr> scale;
    if (!c.keep) scale.emplace(scalar("scale", f32));
    Tensor out = output(c.keep ? "written" : "out", in.columns(), c.type);
    Tensor states = c.keep ? output("states", in.states(), c.type) : out;
    Tensor end = c.last ? output("final_state", in.ends(), f32) : out;
    s.declare();
    grid(in.blocks(), in.heads, s.count(), [&](Index x, Index h, Index n) {
      Expr column = x * c.block;
      Fragment state({c.features(), c.block}, f32, 0);
      if (c.first) copy(start.slice(n, h).at(0, column), state);
      pipelined(ceildiv(s.length(n), c.rows), {.stages = 2}, [&](Index chunk) {
        Expr row = chunk * c.rows;
        KdaChunk own(c);
        Shared values({c.rows, c.block}, c.type), rounded({c.features(), c.block}, c.type);
        in.load(own, n, h, row);
        copy(s.head(v, n, h).at(row, column), values);
        own.sum_gates();
        copy(state, rounded);
        Shared away = own.away(), written = written_by(own, values, rounded, away);
        if (c.keep) {
          copy(rounded, in.chunk(states, n, chunk, h).at(0, column));
          copy(written, s.head(out, n, h).at(row, column));
        } else {
          copy(results_of(own, rounded, away, written, *scale), s.head(out, n, h).at(row, column));
        }
        pass(own, written, state);
      });
      if (c.last) copy(state, end.slice(n, h).at(0, column));
    });
  });
}

}  // namespace tegula::ops
