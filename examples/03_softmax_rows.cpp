// Lesson 3: reductions, rows of any length processed in chunks, and a fill value outside the tensor.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

Kernel softmax_rows(int rows, int chunk) {
  return kernel("softmax_rows", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f32), Y = output("Y", {M, N}, f32);
    grid(ceildiv(M, rows), [&](Index block) {
      Expr chunks = ceildiv(N, chunk);
      Fragment top({rows}, f32, -inf), sum({rows}, f32, 0);
      pipelined(chunks, [&](Index n) {
        Fragment x({rows, chunk}, f32), before = clone(top);
        copy(X.at(block * rows, n * chunk), x, {.fill = -inf});  // as if the row continued with −∞
        reduce_max(x, top);
        parallel(sum, [&](Index i) { sum(i) *= select(before(i) == -inf, 0, exp(before(i) - top(i))); });
        parallel(x, [&](Index i, Index j) { x(i, j) = select(top(i) == -inf, 0, exp(x(i, j) - top(i))); });
        reduce_sum(x, sum);
      });
      pipelined(chunks, [&](Index n) {
        Fragment x = load(X.at(block * rows, n * chunk), {rows, chunk});
        parallel(x, [&](Index i, Index j) { x(i, j) = exp(x(i, j) - top(i)) / sum(i); });
        copy(x, Y.at(block * rows, n * chunk));
      });
    });
  });
}

TEGULA_KERNELS(softmax_rows(4, 32))  // what `tegula show` and tegula.load() find here

int main() {
  auto softmax = tegula::compile(softmax_rows(4, 32));
  int m = 9, n = 77;
  auto x = tegula::Tensor::random_normal({m, n}, f32, 1), y = tegula::Tensor::empty({m, n}, f32),
       expected = y.clone();
  softmax(x, y);
  for (int i = 0; i < m; ++i) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += std::exp(x.get({i, j}));
    for (int j = 0; j < n; ++j) expected.set({i, j}, std::exp(x.get({i, j})) / sum);
  }
  check("softmax_rows", y, expected, 1e-6);
}
