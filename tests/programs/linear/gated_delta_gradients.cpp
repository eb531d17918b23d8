// Gated delta net, gradients: of the states, from the last chunk to the first, and of q, k, w and the gates
// of every chunk.
#include "tests/programs/linear/gated_delta.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// dV2 = dV + e^(g_last − g) K dh; dh ← e^g_last dh + scale (e^g Q)ᵀ dO − Wᵀ dV2.
Kernel gradient_of_states(const DeltaTile& t) {
  return kernel("gated_delta_state_gradient", [&] {
    Sequences s(t);
    Tensor Q = s.in("Q", {t.dk}, t.type), K = s.in("K", {t.dk}, t.type), W = s.in("W", {t.dk}, t.type);
    Tensor G = s.in("G", {}, f32), dO = s.in("dO", {t.dv}, t.type), dV = s.in("dV", {t.dv}, t.type);
    Dim N("N"), C("C");
    Tensor d_end = input("d_end", {N, s.H, t.dk, t.dv}, f32);
    Expr scale = scalar("scale", f32);
    Tensor d_states = output("d_states", s.states(C), t.type), dV2 = s.out("dV2", {t.dv}, t.type);
    Tensor d_start = output("d_start", {N, s.H, t.dk, t.dv}, f32);
    s.declare_fences();
    grid(ceildiv(t.dv, t.block_v), s.H, N, {.threads = t.threads}, [&](Index x, Index h, Index n) {
      Tensor k_of = s.of(K, n, h), states_of = s.chunks_of(d_states, n, h);
      Expr column = x * t.block_v, length = k_of.extent(0), chunks = ceildiv(length, t.chunk);
      Fragment dh({t.dk, t.block_v}, f32);
      copy(d_end.slice(n, h).at(0, column), dh);
      pipelined(chunks, {.stages = t.stages}, [&](Index step) {
        Expr chunk = chunks - 1 - step, row = chunk * t.chunk;
        Shared k({t.chunk, t.dk}, t.type), q({t.chunk, t.dk}, t.type), w({t.chunk, t.dk}, t.type),
            g({t.chunk}, f32);
        Shared dout({t.chunk, t.block_v}, t.type), dv({t.chunk, t.block_v}, t.type);
        Shared rounded({t.dk, t.block_v}, t.type), minus({t.chunk, t.block_v}, t.type);
        copy(k_of.at(row), k);
        copy(s.of(G, n, h).at(row), g);
        copy(s.of(dV, n, h).at(row, column), dv);
        copy(s.of(Q, n, h).at(row), q);
        copy(s.of(dO, n, h).at(row, column), dout);
        copy(s.of(W, n, h).at(row), w);
        copy(dh, rounded);
        copy(rounded, states_of.slice(chunk).at(0, column));
        Fragment v({t.chunk, t.block_v}, f32, 0);
        gemm(k, rounded, v);
        Expr total = g(min(t.chunk, length - row) - 1);
        parallel(v, [&](Index i, Index j) {
          v(i, j) = select(row + i < length, v(i, j) * exp(min(total - g(i), 0)) + dv(i, j), 0);
        });
        copy(v, s.of(dV2, n, h).at(row, column));
        parallel(dh, [&](Index i, Index j) { dh(i, j) *= exp(total); });
        parallel(dout, [&](Index i, Index j) { dout(i, j) *= scale * exp(g(i)); });
        parallel(v, [&](Index i, Index j) { v(i, j) = -v(i, j); });
        copy(v, minus);
        gemm(q.T(), dout, dh);
        gemm(w.T(), minus, dh);
      });
      copy(dh, d_start.slice(n, h).at(0, column));
    });
  });
}

// The parameters and views of a chunk's gradients.
struct OutGradient {
  DeltaTile t;
  Sequences s;
  Dim C{"C"};
  Tensor Q, K, V, G, dO, dV, states, d_states;
  Expr scale;
  Tensor dQ, dK, dW, dG;

  explicit OutGradient(const DeltaTile& tile)
      : t(tile),
        s(t),
        Q(s.in("Q", {t.dk}, t.type)),
        K(s.in("K", {t.dk}, t.type)),
        V(s.in("V", {t.dv}, t.type)),
        G(s.in("G", {}, f32)),
        dO(s.in("dO", {t.dv}, t.type)),
        dV(s.in("dV", {t.dv}, t.type)),
        states(input("states", s.states(C), t.type)),
        d_states(input("d_states", s.states(C), t.type)),
        scale(scalar("scale", f32)),
        dQ(s.out("dQ", {t.dk}, t.type)),
        dK(s.out("dK", {t.dk}, t.type)),
        dW(s.out("dW", {t.dk}, t.type)),
        dG(s.out("dG", {}, f32)) {
    s.declare_fences();
  }

  struct Sums {
    Fragment ds, dq, dk, dw, both;
    explicit Sums(const DeltaTile& t)
        : ds({t.chunk, t.chunk}, f32, 0),
          dq({t.chunk, t.dk}, f32, 0),
          dk({t.chunk, t.dk}, f32, 0),
          dw({t.chunk, t.dk}, f32, 0),
          both({t.dk}, f32, 0) {}
  };
  // Some columns of values at a time.
  void add_columns(Sums& sums, const Expr& row, const Expr& chunk, const Expr& n, const Expr& h) const {
    Tensor state = s.chunks_of(states, n, h).slice(chunk), d_state = s.chunks_of(d_states, n, h).slice(chunk);
    pipelined(ceildiv(t.dv, t.block_v), {.stages = 2}, [&](Index x) {
      Expr column = x * t.block_v;
      Shared v({t.chunk, t.block_v}, t.type), dout({t.chunk, t.block_v}, t.type),
          dv({t.chunk, t.block_v}, t.type);
      Shared hs({t.dk, t.block_v}, t.type), dhs({t.dk, t.block_v}, t.type);
      copy(s.of(V, n, h).at(row, column), v);
      copy(s.of(dO, n, h).at(row, column), dout);
      copy(state.at(0, column), hs);
      copy(d_state.at(0, column), dhs);
      copy(s.of(dV, n, h).at(row, column), dv);
      gemm(dout, v.T(), sums.ds);
      gemm(dout, hs.T(), sums.dq);
      gemm(v, dhs.T(), sums.dk);
      gemm(dv, hs.T(), sums.dw);
      Fragment product({t.dk, t.block_v}, f32);
      parallel(product, [&](Index i, Index j) { product(i, j) = hs(i, j) * dhs(i, j); });
      reduce_sum(product, sums.both);
    });
  }
  // What products of the chunk itself add, and the gradient of its gates.
  void finish(Sums& sums, const Expr& row, const Expr& last, const Expr& n, const Expr& h) const {
    auto& [ds, dq, dk, dw, both] = sums;
    Shared q({t.chunk, t.dk}, t.type), k({t.chunk, t.dk}, t.type), g({t.chunk}, f32);
    Shared rounded({t.chunk, t.chunk}, t.type);
    copy(s.of(Q, n, h).at(row), q);
    copy(s.of(K, n, h).at(row), k);
    copy(s.of(G, n, h).at(row), g);
    Fragment scores({t.chunk, t.chunk}, f32, 0), through({t.chunk, t.dk}, f32);
    Fragment dg({t.chunk}, f32, 0), lost({t.chunk}, f32, 0);
    gemm(q, k.T(), scores);
    parallel(dq, [&](Index i, Index j) {
      dq(i, j) *= scale * exp(g(i));
      through(i, j) = dq(i, j) * q(i, j);
    });
    reduce_sum(through, dg);
    parallel(dk, [&](Index i, Index j) {
      dk(i, j) *= select(i <= last, exp(min(g(last) - g(i), 0)), 0);
      through(i, j) = dk(i, j) * k(i, j);
    });
    reduce_sum(through, lost);
    Expr at_last = reduce_sum(both).scalar() * exp(g(last)) + reduce_sum(lost).scalar();
    parallel(ds, [&](Index i, Index j) { ds(i, j) = decayed(ds(i, j) * scale, g(i), g(j), i >= j); });
    copy(ds, rounded);
    parallel(ds, [&](Index i, Index j) { ds(i, j) *= scores(i, j); });
    reduce_sum(ds, dg);
    Fragment columns = reduce_sum(ds, 0);
    parallel(dg, [&](Index i) { dg(i) += select(i == last, at_last, 0) - lost(i) - columns(i); });
    copy(dg, s.of(dG, n, h).at(row));
    gemm(rounded, k, dq);
    gemm(rounded.T(), q, dk);
    copy(dq, s.of(dQ, n, h).at(row));
    copy(dk, s.of(dK, n, h).at(row));
  }
};

Kernel gradient_of_outputs(const DeltaTile& t) {
  return kernel("gated_delta_out_gradient", [&] {
    OutGradient own(t);
    const Sequences& s = own.s;
    grid(s.most_chunks(), s.H, s.count(), {.threads = t.threads}, [&](Index chunk, Index h, Index n) {
      Expr row = chunk * t.chunk, length = s.of(own.K, n, h).extent(0);
      if (t.packed) exit_if(row >= length);
      OutGradient::Sums sums(t);
      own.add_columns(sums, row, chunk, n, h);
      parallel(sums.dw, [&](Index i, Index j) { sums.dw(i, j) = -sums.dw(i, j); });
      copy(sums.dw, s.of(own.dW, n, h).at(row));
      own.finish(sums, row, min(t.chunk, length - row) - 1, n, h);
    });
  });
}

DeltaTile small_gradient_tile(bool packed) { return {.dk = 64, .dv = 32, .block_v = 32, .packed = packed}; }
constexpr double gradient_scale = 0.125;

Prepared state_gradient_call(bool packed) {
  const DeltaTile t = small_gradient_tile(packed);
  const CallSequences s(t);
  const Data q = normal(s.tokens({t.dk}), bf16, 7), k = normal(s.tokens({t.dk}), bf16, 1, .1);
  const Data w = normal(s.tokens({t.dk}), bf16, 2, .1), dout = normal(s.tokens({t.dv}), bf16, 4);
  const Data dv = normal(s.tokens({t.dv}), bf16, 6), d_end = normal({s.count(), s.heads, t.dk, t.dv}, f32, 5);
  const Numbers Q(q), K(k), W(w), dO(dout), dV(dv), g = s.gates(3);
  Numbers dh(d_end), d_states(s.chunks({t.dk, t.dv})), dV2(dV.shape);
  s.each_chunk_back([&](int n, int chunk, int row, int rows, int h) {
    const double total = g(row + rows - 1, h);
    each(rows, t.dv, [&](int i, int e) {
      const double carried = sum_of(t.dk, [&](int d) { return K(row + i, h, d) * dh(n, h, d, e); });
      dV2(row + i, h, e) = dV(row + i, h, e) + carried * std::exp(total - g(row + i, h));
    });
    each(t.dk, t.dv, [&](int d, int e) {
      d_states(chunk, h, d, e) = dh(n, h, d, e);
      dh(n, h, d, e) =
          dh(n, h, d, e) * std::exp(total) + sum_of(rows, [&](int i) {
            const int at = row + i;
            return gradient_scale * Q(at, h, d) * std::exp(g(at, h)) * dO(at, h, e) - W(at, h, d) * dV2(at, h, e);
          });
    });
  });
  std::vector<Value> values{
      s.given(q),           s.given(k), s.given(w), s.given(g.to(f32)),       s.given(dout),
      s.given(dv),          d_end,      gradient_scale,      s.wanted(d_states, bf16), s.wanted(dV2, bf16),
      Wanted{dh, f32, 2e-2}};
  s.add_fences(values);
  return {gradient_of_states(t), values};
}

struct ChunkGradients {
  Numbers dQ, dK, dW, dG;
};
struct ChunkInputs {
  Numbers Q, K, V, dO, dV, states, d_states, g;
};
// Adds the gradients of one chunk of a head.
void add_gradients(const ChunkInputs& in, int chunk, int row, int rows, int h, ChunkGradients& to) {
  const auto& [Q, K, V, dO, dV, X, dX, g] = in;
  const int dk = static_cast<int>(Q.shape[2]), dv = static_cast<int>(V.shape[2]), end = row + rows - 1;
  double last = 0;
  each(dk, dv, [&](int d, int e) { last += X(chunk, h, d, e) * dX(chunk, h, d, e) * std::exp(g(end, h)); });
  each(rows, dk, [&](int i, int d) {
    const int at = row + i;
    const double a =
        gradient_scale * std::exp(g(at, h)) * sum_of(dv, [&](int e) { return dO(at, h, e) * X(chunk, h, d, e); });
    const double b =
        std::exp(g(end, h) - g(at, h)) * sum_of(dv, [&](int e) { return V(at, h, e) * dX(chunk, h, d, e); });
    to.dW(at, h, d) = -sum_of(dv, [&](int e) { return dV(at, h, e) * X(chunk, h, d, e); });
    to.dQ(at, h, d) += a, to.dK(at, h, d) += b;
    to.dG(at, h) += a * Q(at, h, d) - b * K(at, h, d);
    last += b * K(at, h, d);
  });
  to.dG(end, h) += last;
  each(rows, rows, [&](int i, int j) {
    if (j > i) return;
    const int a = row + i, b = row + j;
    const double ds =
        gradient_scale * std::exp(g(a, h) - g(b, h)) * sum_of(dv, [&](int e) { return dO(a, h, e) * V(b, h, e); });
    const double dot = sum_of(dk, [&](int d) { return Q(a, h, d) * K(b, h, d); });
    each(dk, [&](int d) {
      to.dQ(a, h, d) += ds * K(b, h, d);
      to.dK(b, h, d) += ds * Q(a, h, d);
    });
    to.dG(a, h) += ds * dot, to.dG(b, h) -= ds * dot;
  });
}

Prepared out_gradient_call(bool packed) {
  const DeltaTile t = small_gradient_tile(packed);
  const CallSequences s(t);
  const Data q = normal(s.tokens({t.dk}), bf16, 7), k = normal(s.tokens({t.dk}), bf16, 1, .3);
  const Data v = normal(s.tokens({t.dv}), bf16, 2), dout = normal(s.tokens({t.dv}), bf16, 4);
  const Data dv = normal(s.tokens({t.dv}), bf16, 6), states = normal(s.chunks({t.dk, t.dv}), bf16, 5, .3);
  const Data d_states = normal(s.chunks({t.dk, t.dv}), bf16, 8, .3);
  const ChunkInputs in{Numbers(q),  Numbers(k),      Numbers(v),        Numbers(dout),
                       Numbers(dv), Numbers(states), Numbers(d_states), s.gates(3)};
  ChunkGradients d{Numbers(in.Q.shape), Numbers(in.Q.shape), Numbers(in.Q.shape), Numbers(s.tokens())};
  s.each_chunk([&](int, int chunk, int row, int rows, int h) { add_gradients(in, chunk, row, rows, h, d); });
  std::vector<Value> values{s.given(q),
                            s.given(k),
                            s.given(v),
                            s.given(in.g.to(f32)),
                            s.given(dout),
                            s.given(dv),
                            s.given(states),
                            s.given(d_states),
                            gradient_scale,
                            s.wanted(d.dQ, bf16),
                            s.wanted(d.dK, bf16),
                            s.wanted(d.dW, bf16),
                            s.wanted(d.dG, f32)};
  s.add_fences(values);
  return {gradient_of_outputs(t), values};
}

}  // namespace

Program gated_delta_state_gradient() {
  return {
      "linear",
      "gated_delta_state_gradient",
      "gradients of the states, from the last chunk to the first",
      {{"", [] { return state_gradient_call(false); }}, {"packed", [] { return state_gradient_call(true); }}},
      {{"64 columns", [] { return gradient_of_states({}); }},
       {"128 columns", [] { return gradient_of_states({.block_v = 128}); }}}};
}
Program gated_delta_out_gradient() {
  return {"linear",
          "gated_delta_out_gradient",
          "gradients of queries, keys, w and gates of every chunk",
          {{"", [] { return out_gradient_call(false); }}, {"packed", [] { return out_gradient_call(true); }}},
          {{"the compiler's threads", [] { return gradient_of_outputs({}); }},
           {"256 threads", [] { return gradient_of_outputs({.threads = 256}); }}}};
}

}  // namespace programs
