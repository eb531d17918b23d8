// Mamba-2 by chunks: what a chunk adds to the state, states passed from chunk to chunk, and the outputs of a
// chunk. dA are sums of the decay's logarithm inside chunks, dt the step widths.
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct MambaTile {
  int groups = 1, p = 64, n = 128, chunk = 256;  // features of a head and of its state
  int m = 64, k = 64;
  DType type = f16;
};

// states = Σ_l x_l · dt_l e^(dA_last − dA_l) ⊗ B_l.
Kernel mamba_states(const MambaTile& t) {
  return kernel("mamba_chunk_state", [&] {
    Dim B("B"), C("C"), H("H");
    Tensor Bs = input("Bs", {B, C, t.chunk, t.groups, t.n}, t.type),
           X = input("X", {B, C, t.chunk, H, t.p}, t.type);
    Tensor dt = input("dt", {B, H, C, t.chunk}, f32), dA = input("dA", {B, H, C, t.chunk}, f32);
    Tensor states = output("states", {B, C, H, t.p, t.n}, t.type);
    grid(H, C, B, [&](Index h, Index c, Index b) {
      Tensor x_of = X.slice(b, c, all, h), b_of = Bs.slice(b, c, all, h / (H / t.groups)),
             a_of = dA.slice(b, h, c);
      Fragment state({t.p, t.n}, f32, 0);
      Expr last = a_of(t.chunk - 1);
      pipelined(t.chunk / t.k, {.stages = 3}, [&](Index step) {
        Shared x({t.k, t.p}, t.type), bs({t.k, t.n}, t.type), a({t.k}, f32), width({t.k}, f32);
        copy(x_of.at(step * t.k), x);
        copy(b_of.at(step * t.k), bs);
        copy(a_of.at(step * t.k), a);
        copy(dt.slice(b, h, c).at(step * t.k), width);
        Fragment turned({t.p, t.k}, f32);
        parallel(turned, [&](Index i, Index j) {
          turned(i, j) = x(j, i) * (width(j) * exp2((last - a(j)) * log2e));
        });
        gemm(turned.to(t.type), bs, state);
      });
      copy(state, states.slice(b, c, h).at(0));
    });
  });
}

// before[c] is what the chunks before c leave.
Kernel states_passed_on(const MambaTile& t, int width) {
  return kernel("mamba_state_passing", [&] {
    Dim B("B"), C("C"), H("H");
    Tensor states = input("states", {B, C, H, t.p * t.n}, t.type), dA = input("dA", {B, H, C, t.chunk}, f32);
    Tensor start = input("start", {B, H, t.p * t.n}, f32),
           before = output("before", {B, C, H, t.p * t.n}, t.type);
    Tensor end = output("end", {B, H, t.p * t.n}, f32);
    grid(t.p * t.n / width, H, B, [&](Index x, Index h, Index b) {
      Fragment state({width}, f32);
      copy(start.slice(b, h).at(x * width), state);
      pipelined(C, {.stages = 3}, [&](Index c) {
        Fragment next = load(states.slice(b, c, h).at(x * width), {width});
        copy(state, before.slice(b, c, h).at(x * width));
        Expr factor = exp(dA(b, h, c, t.chunk - 1));
        parallel(state, [&](Index i) { state(i) = state(i) * factor + next(i); });
      });
      copy(state, end.slice(b, h).at(x * width));
    });
  });
}

// out = e^dA C · before + lower triangle of (C Bᵀ ∘ e^(dA_i − dA_j) dt_j) · x + D x. The last rows of chunks
// come first.
Kernel outputs_of_chunks(const MambaTile& t) {
  return kernel("mamba_chunk_scan", [&] {
    Dim B("B"), C("C"), H("H");
    Tensor CB = input("CB", {B, C, t.groups, t.chunk, t.chunk}, t.type);
    Tensor X = input("X", {B, C, t.chunk, H, t.p}, t.type), dt = input("dt", {B, H, C, t.chunk}, f32);
    Tensor dA = input("dA", {B, H, C, t.chunk}, f32),
           Cs = input("Cs", {B, C, t.chunk, t.groups, t.n}, t.type);
    Tensor before = input("before", {B, C, H, t.p, t.n}, t.type), D = input("D", {H}, f32);
    Tensor out = output("out", {B, C, t.chunk, H, t.p}, t.type);
    const int rows = t.chunk / t.m;
    grid(rows * C, H, B, [&](Index x, Index h, Index b) {
      Expr c = x % C, m0 = (rows - 1 - x / C) * t.m, g = h / (H / t.groups), skip = D(h);
      Tensor x_of = X.slice(b, c, all, h), a_of = dA.slice(b, h, c);
      Fragment acc({t.m, t.p}, f32, 0), a_m({t.m}, f32);
      Shared c_tile({t.m, t.n}, t.type), state({t.p, t.n}, t.type);
      copy(a_of.at(m0), a_m);
      copy(Cs.slice(b, c, all, g).at(m0), c_tile);
      copy(before.slice(b, c, h).at(0), state);
      gemm(c_tile, state.T(), acc);
      parallel(acc, [&](Index i, Index j) { acc(i, j) *= exp2(a_m(i) * log2e); });
      pipelined(ceildiv(m0 + t.m, t.k), {.stages = 2}, [&](Index step) {
        Expr k0 = step * t.k;
        Shared xs({t.k, t.p}, t.type), cb({t.m, t.k}, t.type), a({t.k}, f32), width({t.k}, f32);
        copy(CB.slice(b, c, g).at(m0, k0), cb);
        copy(a_of.at(k0), a);
        copy(dt.slice(b, h, c).at(k0), width);
        copy(x_of.at(k0), xs);
        Fragment p({t.m, t.k}, f32);
        parallel(p, [&](Index i, Index j) {
          Expr decay = exp2(min(a_m(i) - a(j), 0) * log2e);
          p(i, j) = select(m0 + i >= k0 + j, cb(i, j) * decay * width(j), 0);
        });
        gemm(p.to(t.type), xs, acc);
      });
      Fragment own = load(x_of.at(m0), {t.m, t.p});
      parallel(acc, [&](Index i, Index j) { acc(i, j) += own(i, j) * skip; });
      copy(acc, out.slice(b, c, all, h).at(m0));
    });
  });
}

const MambaTile small_mamba{.n = 64, .chunk = 128};
constexpr int C = 2, mamba_heads = 2;

// A call with a batch of one.
struct MambaCall {
  int L = small_mamba.chunk, P = small_mamba.p, N = small_mamba.n;
  Data bs = normal({C, L, N}, f16, 1), x = normal({C, L, mamba_heads, P}, f16, 2), dt = uniform({mamba_heads, C, L}, f32, 3);
  Numbers Bs{bs}, X{x}, T{dt}, dA{uniform({mamba_heads, C, L}, f32, 9, -0.05, 0)};

  MambaCall() {
    each(mamba_heads, C, L, [&](int h, int c, int l) {
      if (l > 0) dA(h, c, l) += dA(h, c, l - 1);
    });
  }
  double decay(int h, int c, int to, int from) const { return std::exp(dA(h, c, to) - dA(h, c, from)); }
  static Data batch(const Data& data) {
    Shape shape = data.shape();
    shape.insert(shape.begin(), 1);
    return data.reshape(shape);
  }
  static Wanted batch(Numbers exact, DType type) {
    exact.shape.insert(exact.shape.begin(), 1);
    return {std::move(exact), type};
  }
};

Prepared chunk_state_call() {
  const MambaCall m;
  Numbers states({C, mamba_heads, m.P * m.N});
  each(C, mamba_heads, m.L, [&](int c, int h, int l) {
    const double weight = m.T(h, c, l) * m.decay(h, c, m.L - 1, l);
    each(m.P, m.N,
         [&](int p, int n) { states(c, h, p * m.N + n) += m.X(c, l, h, p) * weight * m.Bs(c, l, n); });
  });
  states.shape = {C, mamba_heads, m.P, m.N};
  return {mamba_states(small_mamba),
          {m.batch(m.bs.reshape({C, m.L, 1, m.N})), m.batch(m.x), m.batch(m.dt), m.batch(m.dA.to(f32)),
           m.batch(states, f16)}};
}

Prepared state_passing_call() {
  const MambaCall m;
  const int width = m.P * m.N;
  const Data states = normal({C, mamba_heads, width}, f16, 5), start = normal({mamba_heads, width}, f32, 8);
  const Numbers S(states);
  Numbers state(start), before(S.shape);
  each(C, mamba_heads, width, [&](int c, int h, int e) {
    before(c, h, e) = state(h, e);
    state(h, e) = state(h, e) * std::exp(m.dA(h, c, m.L - 1)) + S(c, h, e);
  });
  return {
      states_passed_on(small_mamba, 1024),
      {m.batch(states), m.batch(m.dA.to(f32)), m.batch(start), m.batch(before, f16), m.batch(state, f32)}};
}

Prepared chunk_scan_call() {
  const MambaCall m;
  const Data cb = normal({C, m.L, m.L}, f16, 5), cs = normal({C, m.L, m.N}, f16, 4, .2);
  const Data before = normal({C, mamba_heads, m.P, m.N}, f16, 6), d = normal({mamba_heads}, f32, 7);
  const Numbers CB(cb), Cs(cs), S(before), D(d);
  Numbers out(m.X.shape);
  each(C, m.L, mamba_heads, [&](int c, int i, int h) {
    each(m.P, [&](int p) {
      const double carried = sum_of(m.N, [&](int n) { return Cs(c, i, n) * S(c, h, p, n); });
      const double inside = sum_of(
          i + 1, [&](int j) { return CB(c, i, j) * m.decay(h, c, i, j) * m.T(h, c, j) * m.X(c, j, h, p); });
      out(c, i, h, p) = carried * std::exp(m.dA(h, c, i)) + inside + D(h) * m.X(c, i, h, p);
    });
  });
  return {outputs_of_chunks(small_mamba),
          {m.batch(cb.reshape({C, 1, m.L, m.L})), m.batch(m.x), m.batch(m.dt), m.batch(m.dA.to(f32)),
           m.batch(cs.reshape({C, m.L, 1, m.N})), m.batch(before), d, m.batch(out, f16)}};
}

}  // namespace

Program mamba_chunk_state() {
  return {"linear",
          "mamba_chunk_state",
          "what chunks add to the states of Mamba-2",
          {{"", chunk_state_call}},
          {{"64 x 128, steps of 64", [] { return mamba_states({}); }}}};
}
Program mamba_state_passing() {
  return {"linear",
          "mamba_state_passing",
          "states passed from chunk to chunk",
          {{"", state_passing_call}},
          {{"1024 elements", [] { return states_passed_on({}, 1024); }}}};
}
Program mamba_chunk_scan() {
  return {"linear",
          "mamba_chunk_scan",
          "outputs of chunks from the states before them",
          {{"", chunk_scan_call}},
          {{"64 rows", [] { return outputs_of_chunks({}); }},
           {"128 rows", [] { return outputs_of_chunks({.m = 128}); }}}};
}

}  // namespace programs
