// Gated delta net, what passes from chunk to chunk: the states, the outputs that they give, and both in one
// pass.
#include "tests/programs/linear/gated_delta.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// A block owns some columns of values and walks the chunks: V_new = U − W · state, state = e^g state +
// (decayed K)ᵀ V_new.
Kernel states_of_chunks(const DeltaTile& t) {
  return kernel("gated_delta_state", [&] {
    Sequences s(t);
    Tensor K = s.in("K", {t.dk}, t.type), W = s.in("W", {t.dk}, t.type), U = s.in("U", {t.dv}, t.type);
    Tensor G = s.in("G", {}, f32);
    Dim N("N"), C("C");
    Tensor start = input("start", {N, s.H, t.dk, t.dv}, f32), states = output("states", s.states(C), t.type);
    Tensor V = s.out("V_new", {t.dv}, t.type), end = output("end", {N, s.H, t.dk, t.dv}, f32);
    s.declare_fences();
    grid(ceildiv(t.dv, t.block_v), s.H, N, {.threads = t.threads}, [&](Index x, Index h, Index n) {
      Tensor states_of = s.chunks_of(states, n, h), v_new = s.of(V, n, h);
      Expr column = x * t.block_v, length = v_new.extent(0);
      Fragment state({t.dk, t.block_v}, f32);
      copy(start.slice(n, h).at(0, column), state);
      pipelined(ceildiv(length, t.chunk), {.stages = t.stages}, [&](Index chunk) {
        Expr row = chunk * t.chunk;
        Shared k({t.chunk, t.dk}, t.type), w({t.chunk, t.dk}, t.type), u({t.chunk, t.block_v}, t.type);
        Shared g({t.chunk}, f32), rounded({t.dk, t.block_v}, t.type), gained({t.chunk, t.block_v}, t.type);
        copy(s.of(W, n, h).at(row), w);
        copy(s.of(U, n, h).at(row, column), u);
        copy(s.of(K, n, h).at(row), k);
        copy(s.of(G, n, h).at(row), g);
        copy(state, rounded);
        copy(rounded, states_of.slice(chunk).at(0, column));
        Fragment v({t.chunk, t.block_v}, f32, 0);
        gemm(w, rounded, v);
        parallel(v, [&](Index i, Index j) { v(i, j) = u(i, j) - v(i, j); });
        copy(v, v_new.at(row, column));
        Expr total = g(min(t.chunk, length - row) - 1), factor = exp(total);
        parallel(
            v, [&](Index i, Index j) { v(i, j) *= select(row + i < length, exp(min(total - g(i), 0)), 0); });
        parallel(state, [&](Index i, Index j) { state(i, j) *= factor; });
        copy(v, gained);
        gemm(k.T(), gained, state);
      });
      copy(state, end.slice(n, h).at(0, column));
    });
  });
}

// O = scale · (e^g Q · state + lower triangle of (Q Kᵀ ∘ e^(g_i − g_j)) · V_new), the features in pieces.
Kernel outputs_of_chunks(const DeltaTile& t, int piece) {
  return kernel("gated_delta_out", [&] {
    Sequences s(t);
    Tensor Q = s.in("Q", {t.dk}, t.type), K = s.in("K", {t.dk}, t.type), V = s.in("V", {t.dv}, t.type);
    Dim C("C");
    Tensor states = input("states", s.states(C), t.type), G = s.in("G", {}, f32);
    Expr scale = scalar("scale", f32);
    Tensor O = s.out("O", {t.dv}, t.type);
    s.declare_fences();
    const int columns = (t.dv + t.block_v - 1) / t.block_v;
    grid(s.most_chunks() * columns, s.H, s.count(), {.threads = t.threads}, [&](Index x, Index h, Index n) {
      Expr chunk = x / columns, column = x % columns * t.block_v, row = chunk * t.chunk;
      Tensor q_of = s.of(Q, n, h), k_of = s.of(K, n, h), state = s.chunks_of(states, n, h).slice(chunk);
      if (t.packed) exit_if(row >= k_of.extent(0));
      Fragment o({t.chunk, t.block_v}, f32, 0), a({t.chunk, t.chunk}, f32, 0);
      pipelined(t.dk / piece, {.stages = t.stages}, [&](Index d) {
        Shared q({t.chunk, piece}, t.type), k({t.chunk, piece}, t.type), h_tile({piece, t.block_v}, t.type);
        copy(q_of.at(row, d * piece), q);
        copy(state.at(d * piece, column), h_tile);
        copy(k_of.at(row, d * piece), k);
        gemm(q, h_tile, o);
        gemm(q, k.T(), a);
      });
      Shared g({t.chunk}, f32), v({t.chunk, t.block_v}, t.type);
      copy(s.of(G, n, h).at(row), g);
      copy(s.of(V, n, h).at(row, column), v);
      parallel(o, [&](Index i, Index j) { o(i, j) *= exp(g(i)); });
      parallel(a, [&](Index i, Index j) { a(i, j) = decayed(a(i, j), g(i), g(j), i >= j); });
      gemm(a.to(t.type), v, o);
      parallel(o, [&](Index i, Index j) { o(i, j) *= scale; });
      copy(o, s.of(O, n, h).at(row, column));
    });
  });
}

constexpr int least_block = 16;  // that is inverted by substitution

// Blocks of the diagonal of I + x become their inverses, a column for each thread, whose elements stay in
// registers. `below` has these blocks of x.
void invert_diagonal(Shared& x, const Shared& below) {
  constexpr int block = least_block;
  parallel(x.extent(0) / block, block, [&](Index b, Index j) {
    std::vector<Expr> column;
    for (int i = 0; i < block; ++i) {
      Var sum = select(i == j, 1.0f, 0.0f);
      for (int k = 0; k < i; ++k) sum -= below(b * block + i, k) * column[static_cast<std::size_t>(k)];
      column.push_back(sum);
      x(b * block + i, b * block + j) = sum;
    }
  });
}

// Of a pair [P, 0; A, Q] of inverted blocks the corner becomes −Q⁻¹ A P⁻¹; all pairs take a step together.
void merge_blocks(Shared& x, Shared& products, int block) {
  const int rows = static_cast<int>(x.extent(0));
  for (int at = 0; at < rows; at += 2 * block) {
    const Subscript top = range(at, at + block), bottom = range(at + block, at + 2 * block);
    Fragment y({block, block}, f32, 0);
    gemm(x.slice(bottom, top), x.slice(top, top), y);
    copy(y, products.slice(range(at / 2, at / 2 + block), range(0, block)));
  }
  for (int at = 0; at < rows; at += 2 * block) {
    const Subscript top = range(at, at + block), bottom = range(at + block, at + 2 * block);
    Fragment z({block, block}, f32, 0);
    gemm(x.slice(bottom, bottom), products.slice(range(at / 2, at / 2 + block), range(0, block)), z);
    parallel(z, [&](Index i, Index j) { z(i, j) = -z(i, j); });
    copy(z, x.slice(bottom, top));
  }
}

// (I + x)⁻¹ in place of a strictly lower triangular x, whose blocks of the diagonal are in `below`, too.
void invert(Shared& x, const Shared& below) {
  const int rows = static_cast<int>(x.extent(0));
  Shared products({rows / 2, rows / 2}, f32);
  invert_diagonal(x, below);
  for (int block = least_block; block < rows; block *= 2) merge_blocks(x, products, block);
}

struct DeltaTiles {
  Shared q, k, v, g, beta;

  explicit DeltaTiles(const DeltaTile& t)
      : q({t.chunk, t.dk}, t.type),
        k({t.chunk, t.dk}, t.type),
        v({t.chunk, t.block_v}, t.type),
        g({t.chunk}, f32),
        beta({t.chunk}, f32) {}
};

// Of products of keys, and of queries, with keys: A and the scores. A decay is found once for both, of
// numbers in registers: reads of tiles would follow stores to others.
void form_system(const DeltaTiles& own, Fragment& a, Fragment& p, Shared& lower, Shared& below) {
  const int L = static_cast<int>(own.g.extent(0));
  Fragment of_row({L}, f32), of_column({L}, f32), strength({L}, f32);
  const auto in_powers_of_two = [&](Fragment& logarithms) {
    parallel(logarithms, [&](Index i) { logarithms(i) = own.g(i) * 1.44269504f; });
  };
  in_powers_of_two(of_row);
  in_powers_of_two(of_column);
  copy(own.beta, strength);
  parallel(a, [&](Index i, Index j) {
    Expr decay = select(i >= j, exp2(min(of_row(i) - of_column(j), 0)), 0);
    p(i, j) *= decay;
    a(i, j) = select(i > j, a(i, j) * strength(i) * decay, 0);
  });
  copy(a, lower);
  parallel(a, [&](Index i, Index j) {
    when(i / least_block == j / least_block, [&] { below(i, j % least_block) = a(i, j); });
  });
}

// One chunk of the pass: (I + A) U = β (V − e^g K state), and U is what the state gains. `first` and `rows`
// are those of the chunk.
void pass_chunk(const DeltaTile& t, const DeltaTiles& own, Fragment& state, const Tensor& o_of,
                const Expr& row, const Expr& column, const Expr& scale) {
  const auto& [q, k, vs, g, beta] = own;
  const int L = t.chunk;
  Expr length = o_of.extent(0);
  Fragment a({L, L}, f32, 0), p({L, L}, f32, 0), seen({L, t.block_v}, f32, 0), o({L, t.block_v}, f32, 0);
  // Rows that begin in other banks.
  Shared rounded({t.dk, t.block_v}, t.type), inverse = Shared({L, L + 8}, f32).slice(all, range(0, L));
  Shared inverse16({L, L}, t.type), right({L, t.block_v}, t.type);
  copy(state, rounded);
  gemm(k, k.T(), a);
  gemm(q, k.T(), p);
  gemm(k, rounded, seen);
  gemm(q, rounded, o);
  Shared below({L, least_block}, f32);
  form_system(own, a, p, inverse, below);
  invert(inverse, below);
  copy(inverse, inverse16);
  // What depends on a row alone is found once for all columns.
  Fragment fade({L}, f32), kept({L}, f32), v({L, t.block_v}, t.type), u({L, t.block_v}, f32, 0);
  parallel(fade, [&](Index i) { fade(i) = exp(g(i)); });
  copy(vs, v);
  parallel(seen, [&](Index i, Index j) { seen(i, j) = beta(i) * (f32(v(i, j)) - fade(i) * seen(i, j)); });
  copy(seen, right);
  gemm(inverse16, right, u);
  Shared us({L, t.block_v}, t.type), gained({L, t.block_v}, t.type);
  copy(u, us);
  parallel(o, [&](Index i, Index j) { o(i, j) *= fade(i); });
  gemm(p.to(t.type), us, o);
  parallel(o, [&](Index i, Index j) { o(i, j) *= scale; });
  copy(o, o_of.at(row, column));
  Expr total = g(min(L, length - row) - 1);
  parallel(kept, [&](Index i) { kept(i) = select(row + i < length, exp(min(total - g(i), 0)), 0); });
  parallel(u, [&](Index i, Index j) { u(i, j) *= kept(i); });
  copy(u, gained);
  parallel(state, [&](Index i, Index j) { state(i, j) *= exp(total); });
  gemm(k.T(), gained, state);
}

Kernel prefill_in_one_pass(const DeltaTile& t) {
  return kernel("gated_delta_prefill", [&] {
    Sequences s(t);
    Tensor Q = s.in("Q", {t.dk}, t.type), K = s.in("K", {t.dk}, t.type), V = s.in("V", {t.dv}, t.type);
    Tensor Beta = s.in("Beta", {}, f32), G = s.in("G", {}, f32);
    Dim N("N");
    Tensor start = input("start", {N, s.H, t.dk, t.dv}, f32);
    Expr scale = scalar("scale", f32);
    Tensor O = s.out("O", {t.dv}, t.type), end = output("end", {N, s.H, t.dk, t.dv}, f32);
    s.declare_fences();
    grid(ceildiv(t.dv, t.block_v), s.H, N, {.threads = t.threads}, [&](Index x, Index h, Index n) {
      Tensor o_of = s.of(O, n, h);
      Expr column = x * t.block_v;
      Fragment state({t.dk, t.block_v}, f32);
      copy(start.slice(n, h).at(0, column), state);
      pipelined(ceildiv(o_of.extent(0), t.chunk), {.stages = t.stages}, [&](Index chunk) {
        Expr row = chunk * t.chunk;
        DeltaTiles own(t);
        copy(s.of(K, n, h).at(row), own.k);
        copy(s.of(G, n, h).at(row), own.g);
        copy(s.of(Beta, n, h).at(row), own.beta);
        copy(s.of(V, n, h).at(row, column), own.v);
        copy(s.of(Q, n, h).at(row), own.q);
        pass_chunk(t, own, state, o_of, row, column, scale);
      });
      copy(state, end.slice(n, h).at(0, column));
    });
  });
}

DeltaTile small(bool packed) { return {.dk = 64, .dv = 32, .block_v = 32, .packed = packed}; }
constexpr double scale = 0.125;

Prepared state_call(bool packed) {
  const DeltaTile t = small(packed);
  const CallSequences s(t);
  const Data k = normal(s.tokens({t.dk}), bf16, 1, .1), w = normal(s.tokens({t.dk}), bf16, 2, .1);
  const Data u = normal(s.tokens({t.dv}), bf16, 4), start = normal({s.count(), s.heads, t.dk, t.dv}, f32, 5);
  const Numbers K(k), W(w), U(u), g = s.gates(3);
  Numbers state(start), states(s.chunks({t.dk, t.dv})), V(U.shape);
  s.each_chunk([&](int n, int chunk, int row, int rows, int h) {
    const double total = g(row + rows - 1, h);
    each(t.dk, t.dv, [&](int d, int e) { states(chunk, h, d, e) = state(n, h, d, e); });
    each(rows, t.dv, [&](int i, int e) {
      V(row + i, h, e) =
          U(row + i, h, e) - sum_of(t.dk, [&](int d) { return W(row + i, h, d) * state(n, h, d, e); });
    });
    each(t.dk, t.dv, [&](int d, int e) {
      state(n, h, d, e) = state(n, h, d, e) * std::exp(total) + sum_of(rows, [&](int i) {
                            return K(row + i, h, d) * V(row + i, h, e) * std::exp(total - g(row + i, h));
                          });
    });
  });
  std::vector<Value> values{
      s.given(k),        s.given(w),        s.given(u), s.given(g.to(f32)), start, s.wanted(states, bf16),
      s.wanted(V, bf16), Wanted{state, f32}};
  s.add_fences(values);
  return {states_of_chunks(t), values};
}

Prepared out_call(bool packed) {
  const DeltaTile t = small(packed);
  const CallSequences s(t);
  const Data q = normal(s.tokens({t.dk}), bf16, 7), k = normal(s.tokens({t.dk}), bf16, 1, .3);
  const Data v = normal(s.tokens({t.dv}), bf16, 4), states = normal(s.chunks({t.dk, t.dv}), bf16, 5, .3);
  const Numbers Q(q), K(k), V(v), X(states), g = s.gates(3);
  Numbers O(V.shape);
  s.each_chunk([&](int, int chunk, int row, int rows, int h) {
    each(rows, [&](int i) {
      const double own = g(row + i, h);
      each(t.dv, [&](int e) {
        O(row + i, h, e) =
            scale * std::exp(own) * sum_of(t.dk, [&](int d) { return Q(row + i, h, d) * X(chunk, h, d, e); });
      });
      each(i + 1, [&](int j) {
        const double dot = sum_of(t.dk, [&](int d) { return Q(row + i, h, d) * K(row + j, h, d); });
        const double weight = scale * dot * std::exp(own - g(row + j, h));
        each(t.dv, [&](int e) { O(row + i, h, e) += weight * V(row + j, h, e); });
      });
    });
  });
  std::vector<Value> values{s.given(q),         s.given(k), s.given(v),       s.given(states),
                            s.given(g.to(f32)), scale,      s.wanted(O, bf16)};
  s.add_fences(values);
  return {outputs_of_chunks(t, 32), values};
}

// The formula token by token: S ← e^gate S; u = β (v − Sᵀ k); S ← S + k uᵀ; o = scale Sᵀ q.
Prepared prefill_call(bool packed) {
  const DeltaTile t = small(packed);
  const CallSequences s(t);
  const Data q = normal(s.tokens({t.dk}), bf16, 7, .3), k = normal(s.tokens({t.dk}), bf16, 1, .12);
  const Data v = normal(s.tokens({t.dv}), bf16, 2), beta = uniform(s.tokens(), f32, 8);
  const Data start = normal({s.count(), s.heads, t.dk, t.dv}, f32, 5);
  const Numbers Q(q), K(k), V(v), B(beta), g = s.gates(3);
  Numbers S(start), O(V.shape);
  s.each_chunk([&](int n, int, int row, int rows, int h) {
    each(rows, t.dv, [&](int i, int e) {
      const int at = row + i;
      const double fading = std::exp(g(at, h) - (i > 0 ? g(at - 1, h) : 0));
      const double dot = sum_of(t.dk, [&](int d) { return (S(n, h, d, e) *= fading) * K(at, h, d); });
      const double u = B(at, h) * (V(at, h, e) - dot);
      O(at, h, e) =
          scale * sum_of(t.dk, [&](int d) { return (S(n, h, d, e) += K(at, h, d) * u) * Q(at, h, d); });
    });
  });
  std::vector<Value> values{s.given(q),    s.given(k),         s.given(v),
                            s.given(beta), s.given(g.to(f32)), start,
                            scale,         s.wanted(O, bf16),  Wanted{S, f32, 2e-2}};
  s.add_fences(values);
  return {prefill_in_one_pass(t), values};
}

}  // namespace

Program gated_delta_state() {
  return {"linear",
          "gated_delta_state",
          "the state before each chunk, and what values it gains",
          {{"", [] { return state_call(false); }}, {"packed", [] { return state_call(true); }}},
          {{"32 columns", [] { return states_of_chunks({.block_v = 32}); }},
           {"64 columns", [] { return states_of_chunks({.block_v = 64}); }},
           {"128 columns", [] { return states_of_chunks({.block_v = 128}); }},
           {"64 columns, packed", [] { return states_of_chunks({.packed = true}); }}}};
}
Program gated_delta_out() {
  return {"linear",
          "gated_delta_out",
          "outputs of chunks from the states before them",
          {{"", [] { return out_call(false); }}, {"packed", [] { return out_call(true); }}},
          {{"pieces of 64", [] { return outputs_of_chunks({.block_v = 128}, 64); }},
           {"one piece of 128", [] { return outputs_of_chunks({.block_v = 128}, 128); }},
           {"pieces of 64, packed", [] { return outputs_of_chunks({.block_v = 128, .packed = true}, 64); }}}};
}
Program gated_delta_prefill() {
  return {"linear",
          "gated_delta_prefill",
          "all of the forward in one pass over the chunks of a head, whose state never leaves the block",
          {{"", [] { return prefill_call(false); }}, {"packed", [] { return prefill_call(true); }}},
          {{"64 columns", [] { return prefill_in_one_pass({.block_v = 64}); }},
           {"64 columns, 128 threads", [] { return prefill_in_one_pass({.block_v = 64, .threads = 128}); }},
           {"128 columns", [] { return prefill_in_one_pass({.block_v = 128}); }}}};
}

}  // namespace programs
