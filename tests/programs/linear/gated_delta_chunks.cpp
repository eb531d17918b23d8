// Gated delta net, what each chunk has alone: sums of its gates, β K Kᵀ with its decay, the inverse of a
// triangular matrix, and w and u.
#include "tests/programs/linear/gated_delta.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// A thread walks the rows of a head.
Kernel cumulative_gates_of(const DeltaTile& t, bool reverse, int heads) {
  return kernel("gated_delta_gates", [&] {
    Sequences s(t);
    Tensor G = s.in("G", {}, f32), Y = s.out("Y", {}, f32);
    s.declare_fences();
    grid(ceildiv(s.H, heads), s.most_chunks(), s.count(), [&](Index x, Index chunk, Index n) {
      Tensor g = s.rows(G, n), y = s.rows(Y, n);
      Expr row = chunk * t.chunk;
      if (t.packed) exit_if(row >= g.extent(0));
      Shared tile({t.chunk, heads}, f32);
      copy(g.at(row, x * heads), tile);
      parallel(heads, [&](Index h) {
        Var sum = 0.0f;
        serial(t.chunk, [&](Index i) {
          Expr at = reverse ? t.chunk - 1 - i : Expr(i);
          sum += tile(at, h);
          tile(at, h) = sum;
        });
      });
      copy(tile, y.at(row, x * heads));
    });
  });
}

// A = the strictly lower triangle of β · K Kᵀ ∘ e^(g_i − g_j).
Kernel scaled_products_of_keys(const DeltaTile& t) {
  return kernel("gated_delta_kkt", [&] {
    Sequences s(t);
    Tensor K = s.in("K", {t.dk}, t.type), Beta = s.in("Beta", {}, t.type), G = s.in("G", {}, f32);
    Tensor A = s.out("A", {t.chunk}, f32);
    s.declare_fences();
    grid(s.most_chunks(), s.H, s.count(), {.threads = t.threads}, [&](Index chunk, Index h, Index n) {
      Tensor k_of = s.of(K, n, h);
      Expr row = chunk * t.chunk;
      if (t.packed) exit_if(row >= k_of.extent(0));
      Shared k({t.chunk, t.dk}, t.type), g({t.chunk}, f32), beta({t.chunk}, f32);
      copy(k_of.at(row), k);
      copy(s.of(G, n, h).at(row), g);
      copy(s.of(Beta, n, h).at(row), beta);
      Fragment a({t.chunk, t.chunk}, f32, 0);
      gemm(k, k.T(), a);
      parallel(a, [&](Index i, Index j) { a(i, j) = decayed(a(i, j) * beta(i), g(i), g(j), i > j); });
      copy(a, s.of(A, n, h).at(row));
    });
  });
}

void invert_diagonal(const Shared& a, Shared& x, int block) {
  parallel(a.extent(0) / block, block, [&](Index b, Index j) {
    serial(block, [&](Index i) {
      Var sum = select(i == j, 1.0f, 0.0f);
      serial(i, [&](Index k) { sum -= a(b * block + i, b * block + k) * x(b * block + k, b * block + j); });
      x(b * block + i, b * block + j) = sum;
    });
  });
}
// x holds the inverses of the diagonal's blocks of this size, then of those of twice the size: of a pair [P,
// 0; A, Q] the corner becomes −Q⁻¹ A P⁻¹.
void merge_blocks(const Shared& a, Shared& x, int block) {
  for (int at = 0; at < a.extent(0); at += 2 * block) {
    const Subscript top = range(at, at + block), bottom = range(at + block, at + 2 * block);
    Fragment y({block, block}, f32, 0), z({block, block}, f32, 0);
    Shared product({block, block}, f32);
    gemm(a.slice(bottom, top), x.slice(top, top), y);
    copy(y, product);
    gemm(x.slice(bottom, bottom), product, z);
    parallel(z, [&](Index i, Index j) { z(i, j) = -z(i, j); });
    copy(z, x.slice(bottom, top));
  }
}
// X = (I + A)⁻¹ of strictly lower triangular chunks. Blocks of 16 on the diagonal are inverted by
// substitution, a column for a thread, and neighbours merged by products.
Kernel inverse_of_chunks(const DeltaTile& t, DType out) {
  return kernel("gated_delta_inverse", [&] {
    Sequences s(t);
    Tensor A = s.in("A", {t.chunk}, f32), X = s.out("X", {t.chunk}, out);
    s.declare_fences();
    grid(s.most_chunks(), s.H, s.count(), [&](Index chunk, Index h, Index n) {
      Tensor a_of = s.of(A, n, h);
      Expr row = chunk * t.chunk;
      if (t.packed) exit_if(row >= a_of.extent(0));
      Shared a({t.chunk, t.chunk}, f32), x({t.chunk, t.chunk}, f32);
      copy(a_of.at(row), a);
      fill(x, 0);
      invert_diagonal(a, x, 16);
      for (int block = 16; block < t.chunk; block *= 2) merge_blocks(a, x, block);
      copy(x, s.of(X, n, h).at(row));
    });
  });
}

// W = A · (β e^g K), U = A · (β V).
Kernel w_and_u(const DeltaTile& t) {
  return kernel("gated_delta_w_u", [&] {
    Sequences s(t);
    Tensor K = s.in("K", {t.dk}, t.type), V = s.in("V", {t.dv}, t.type), Beta = s.in("Beta", {}, t.type);
    Tensor G = s.in("G", {}, f32), A = s.in("A", {t.chunk}, t.type);
    Tensor W = s.out("W", {t.dk}, t.type), U = s.out("U", {t.dv}, t.type);
    s.declare_fences();
    grid(s.most_chunks(), s.H, s.count(), {.threads = t.threads}, [&](Index chunk, Index h, Index n) {
      Tensor k_of = s.of(K, n, h);
      Expr row = chunk * t.chunk;
      if (t.packed) exit_if(row >= k_of.extent(0));
      Shared a({t.chunk, t.chunk}, t.type), k({t.chunk, t.dk}, t.type), v({t.chunk, t.dv}, t.type);
      copy(s.of(A, n, h).at(row), a);
      copy(k_of.at(row), k);
      copy(s.of(V, n, h).at(row), v);
      Fragment beta({t.chunk}, f32), factor({t.chunk}, f32);
      copy(s.of(Beta, n, h).at(row), beta);
      copy(s.of(G, n, h).at(row), factor);
      parallel(factor, [&](Index i) { factor(i) = beta(i) * exp(factor(i)); });
      parallel(k, [&](Index i, Index j) { k(i, j) *= factor(i); });
      parallel(v, [&](Index i, Index j) { v(i, j) *= beta(i); });
      Fragment w({t.chunk, t.dk}, f32, 0), u({t.chunk, t.dv}, f32, 0);
      gemm(a, v, u);
      gemm(a, k, w);
      copy(u, s.of(U, n, h).at(row));
      copy(w, s.of(W, n, h).at(row));
    });
  });
}

DeltaTile small(bool packed) { return {.dk = 32, .dv = 16, .block_v = 16, .packed = packed}; }

Prepared gates_call(bool packed, bool reverse) {
  DeltaTile t = small(packed);
  t.chunk = 16;
  const CallSequences s(t);
  const Data g = normal(s.tokens(), f32, 1);
  Numbers Y(g);
  s.each_chunk([&](int, int, int row, int rows, int h) {
    for (int i = 1; i < rows; ++i) {
      if (reverse)
        Y(row + rows - 1 - i, h) += Y(row + rows - i, h);
      else
        Y(row + i, h) += Y(row + i - 1, h);
    }
  });
  std::vector<Value> values{s.given(g), s.wanted(Y, f32, 1e-5)};
  s.add_fences(values);
  return {cumulative_gates_of(t, reverse, 4), values};
}

Prepared kkt_call(bool packed) {
  const DeltaTile t = small(packed);
  const CallSequences s(t);
  const Data k = normal(s.tokens({t.dk}), bf16, 1, .3), beta = uniform(s.tokens(), bf16, 2);
  const Numbers K(k), B(beta), g = s.gates(3);
  Numbers A(s.tokens({t.chunk}));
  s.each_chunk([&](int, int, int row, int rows, int h) {
    each(rows, rows, [&](int i, int j) {
      if (j >= i) return;
      const double dot = sum_of(t.dk, [&](int d) { return K(row + i, h, d) * K(row + j, h, d); });
      A(row + i, h, j) = dot * B(row + i, h) * std::exp(g(row + i, h) - g(row + j, h));
    });
  });
  std::vector<Value> values{s.given(k), s.given(beta), s.given(g.to(f32)), s.wanted(A, f32, 1e-5)};
  s.add_fences(values);
  return {scaled_products_of_keys(t), values};
}

Prepared inverse_call(bool packed) {
  const DeltaTile t = small(packed);
  const CallSequences s(t);
  const Numbers noise(normal(s.tokens({t.chunk}), f32, 1, .2));
  Numbers A(s.tokens({t.chunk})), X(A.shape);
  s.each_chunk([&](int, int, int row, int rows, int h) {
    each(rows, rows, [&](int i, int j) { A(row + i, h, j) = j < i ? noise(row + i, h, j) : 0; });
    each(rows, rows, [&](int j, int i) {
      X(row + i, h, j) = (i == j) - sum_of(i, [&](int k) { return A(row + i, h, k) * X(row + k, h, j); });
    });
  });
  std::vector<Value> values{s.given(A.to(f32)), s.wanted(X, f32, 1e-4)};
  s.add_fences(values);
  return {inverse_of_chunks(t, f32), values};
}

Prepared w_and_u_call(bool packed) {
  const DeltaTile t = small(packed);
  const CallSequences s(t);
  const Data k = normal(s.tokens({t.dk}), bf16, 1), v = normal(s.tokens({t.dv}), bf16, 4);
  const Data beta = uniform(s.tokens(), bf16, 2), a = normal(s.tokens({t.chunk}), bf16, 5, .2);
  const Numbers K(k), V(v), B(beta), A(a), g = s.gates(3);
  Numbers W(K.shape), U(V.shape);
  s.each_chunk([&](int, int, int row, int rows, int h) {
    each(rows, rows, [&](int i, int j) {
      const double weight = A(row + i, h, j) * B(row + j, h), factor = std::exp(g(row + j, h));
      each(t.dk, [&](int d) { W(row + i, h, d) += weight * factor * K(row + j, h, d); });
      each(t.dv, [&](int d) { U(row + i, h, d) += weight * V(row + j, h, d); });
    });
  });
  std::vector<Value> values{s.given(k), s.given(v),        s.given(beta),    s.given(g.to(f32)),
                            s.given(a), s.wanted(W, bf16), s.wanted(U, bf16)};
  s.add_fences(values);
  return {w_and_u(t), values};
}

}  // namespace

Program gated_delta_gates() {
  return {"linear",
          "gated_delta_gates",
          "running sums of gates inside chunks",
          {{"", [] { return gates_call(false, false); }},
           {"reverse_packed", [] { return gates_call(true, true); }}},
          {{"32 heads", [] { return cumulative_gates_of({}, false, 32); }}}};
}
Program gated_delta_kkt() {
  return {"linear",
          "gated_delta_kkt",
          "products of the keys of a chunk with their decay, strictly lower",
          {{"", [] { return kkt_call(false); }}, {"packed", [] { return kkt_call(true); }}},
          {{"128 features", [] { return scaled_products_of_keys({}); }},
           {"128 features, packed", [] { return scaled_products_of_keys({.packed = true}); }}}};
}
Program gated_delta_inverse() {
  return {"linear",
          "gated_delta_inverse",
          "inverses of unit lower triangular chunks of 64",
          {{"", [] { return inverse_call(false); }}, {"packed", [] { return inverse_call(true); }}},
          {{"64 x 64", [] { return inverse_of_chunks({}, bf16); }}}};
}
Program gated_delta_w_u() {
  return {"linear",
          "gated_delta_w_u",
          "the inverse times scaled keys and scaled values",
          {{"", [] { return w_and_u_call(false); }}, {"packed", [] { return w_and_u_call(true); }}},
          {{"128 features", [] { return w_and_u({}); }},
           {"128 features, 256 threads", [] { return w_and_u({.threads = 256}); }}}};
}

}  // namespace programs
