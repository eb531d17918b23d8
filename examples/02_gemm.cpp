// Lesson 2: shared tiles, a pipelined loop, a matrix product, and an epilogue. The program states what to
// compute; stages and the order of blocks are hints.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

struct GemmTile {
  int m, n, k;
};

Kernel gemm_relu(GemmTile t) {
  return kernel("gemm_relu", [&] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {N, K}, bf16), C = output("C", {M, N}, f32);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), {.order = Order::grouped(8)}, [&](Index bx, Index by) {
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(ceildiv(K, t.k), {.stages = 3}, [&](Index k) {
        Shared As({t.m, t.k}, bf16), Bs({t.n, t.k}, bf16);
        copy(A.at(by * t.m, k * t.k), As);
        copy(B.at(bx * t.n, k * t.k), Bs);
        gemm(As, Bs.T(), acc);
      });
      parallel(acc, [&](Index i, Index j) { acc(i, j) = max(acc(i, j), 0); });
      copy(acc, C.at(by * t.m, bx * t.n));
    });
  });
}

TEGULA_KERNELS(gemm_relu({32, 32, 16}))  // what `tegula show` and tegula.load() find here

int main() {
  auto gemm = tegula::compile(gemm_relu({32, 32, 16}));
  int m = 50, n = 70, k = 33;  // not multiples of the tile
  auto a = tegula::Tensor::random_integers({m, k}, bf16, 1, -4, 5),
       b = tegula::Tensor::random_integers({n, k}, bf16, 2, -4, 5);
  auto c = tegula::Tensor::empty({m, n}, f32), expected = tegula::Tensor::zeros({m, n}, f32);
  gemm(a, b, c);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) sum += a.get({i, p}) * b.get({j, p});
      expected.set({i, j}, std::fmax(sum, 0));
    }
  check("gemm_relu", c, expected, 0);
}
