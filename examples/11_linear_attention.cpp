// Lesson 11: linear attention. The recurrence S ← γ S + k vᵀ, o = Sᵀ q over tokens is not a matrix product,
// but over chunks of tokens it is a few: within its own chunk, a query sees a small causal attention with
// decays; everything earlier is in the state; and the state advances one chunk at a time.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// q, k, v are [heads, tokens, dim]; `decays` holds the natural logarithm of γ for every head.
Kernel linear_attention(int dim, int chunk) {
  return kernel("linear_attention", [&] {
    Dim H("H"), T("T");
    Tensor Q = input("q", {H, T, dim}, f32), K = input("k", {H, T, dim}, f32),
           V = input("v", {H, T, dim}, f32);
    Tensor decays = input("decays", {H}, f32), O = output("out", {H, T, dim}, f32);
    grid(H, [&](Index h) {  // one block processes the chunks of a head in sequence
      Expr g = decays(h);
      Fragment state({dim, dim}, f32, 0);
      pipelined(ceildiv(T, chunk), {.stages = 2}, [&](Index c) {
        Shared q({chunk, dim}, f32), k({chunk, dim}, f32), v({chunk, dim}, f32), before({dim, dim}, f32);
        copy(Q.slice(h).at(c * chunk), q);
        copy(K.slice(h).at(c * chunk), k);  // tokens past the end are zeros and have no effect
        copy(V.slice(h).at(c * chunk), v);
        copy(state, before);
        Fragment out({chunk, dim}, f32, 0), s({chunk, chunk}, f32, 0);
        gemm(q, before, out);  // the contribution of earlier chunks, decayed by i + 1 tokens
        parallel(out, [&](Index i, Index d) { out(i, d) *= exp(g * f32(i + 1)); });
        gemm(q, k.T(), s);
        // For j > i the exponential may overflow; select() discards it.
        parallel(s, [&](Index i, Index j) { s(i, j) = select(j <= i, s(i, j) * exp(g * f32(i - j)), 0); });
        gemm(s, v, out);
        copy(out, O.slice(h).at(c * chunk));

        // By the end of the chunk, the key at position i has decayed by chunk − 1 − i tokens.
        Shared faded({chunk, dim}, f32);
        parallel(faded, [&](Index i, Index d) { faded(i, d) = k(i, d) * exp(g * f32(chunk - 1 - i)); });
        parallel(state, [&](Index i, Index j) { state(i, j) *= exp(g * static_cast<float>(chunk)); });
        gemm(faded.T(), v, state);
      });
    });
  });
}

TEGULA_KERNELS(linear_attention(16, 16))  // what `tegula show` and tegula.load() find here

int main() {
  constexpr int heads = 2, tokens = 37, dim = 16;
  auto shape = tegula::Shape{heads, tokens, dim};
  auto q = tegula::Tensor::random_normal(shape, f32, 1), k = tegula::Tensor::random_normal(shape, f32, 2),
       v = tegula::Tensor::random_normal(shape, f32, 3);
  std::vector<float> decays = {-0.05f, -0.5f};
  auto out = tegula::Tensor::empty(shape, f32), expected = tegula::Tensor::zeros(shape, f32);
  tegula::compile(linear_attention(dim, 16))(q, k, v, tegula::Tensor::from(decays), out);
  for (int h = 0; h < heads; ++h) {
    double state[dim][dim] = {};
    for (int t = 0; t < tokens; ++t)
      for (int j = 0; j < dim; ++j) {
        double sum = 0;
        for (int i = 0; i < dim; ++i) {
          state[i][j] = std::exp(decays[h]) * state[i][j] + k.get({h, t, i}) * v.get({h, t, j});
          sum += state[i][j] * q.get({h, t, i});
        }
        expected.set({h, t, j}, sum);
      }
  }
  check("linear_attention", out, expected, 1e-3);
}
