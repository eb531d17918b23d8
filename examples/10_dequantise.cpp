// Lesson 10: dequantisation. 4-bit weights, two per byte with one scale per 32 weights, are converted to bf16
// inside the loop and multiplied on tensor cores. A quarter of the bytes of bf16 weights is read.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// y = x Wᵀ with W[j, p] = (weight[j, p] − 8) · scales[j, p / 32]. The call passes the weights as u8 [N, K /
// 2]: byte p of a row holds weight 2 p in its low half, and weight 2 p + 1 in its high half.
Kernel product_of_nibbles(int m, int n) {
  constexpr int k = 64, group = 32;
  return kernel("product_of_nibbles", [&] {
    Dim M("M"), N("N"), G("groups");
    Tensor X = input("x", {M, G * group}, bf16);
    PackedTensor W = input("weight", {N, G * group}, u4.minus(8));
    Tensor scales = input("scales", {N, G}, f32), Y = output("y", {M, N}, f32);
    grid(ceildiv(N, n), ceildiv(M, m), [&](Index bx, Index by) {
      Fragment sum({m, n}, f32, 0);
      pipelined(ceildiv(G, k / group), {.stages = 3}, [&](Index step) {
        Shared x({m, k}, bf16), w({n, k}, bf16);
        PackedShared packed({n, k}, u4.minus(8));
        copy(X.at(by * m, step * k), x);
        copy(W.at(bx * n, step * k), packed);
        // as_f32() converts a weight without an instruction for integers. Past the last group the scale reads
        // as 0, so the weights there do not matter.
        parallel(w, [&](Index j, Index p) {
          Expr scale = scales(bx * n + j, step * (k / group) + p / group);
          w(j, p) = packed.as_f32(j, p) * scale;  // rounded to bf16 by the store
        });
        gemm(x, w.T(), sum);
      });
      copy(sum, Y.at(by * m, bx * n));
    });
  });
}

TEGULA_KERNELS(product_of_nibbles(32, 32))  // what `tegula show` and tegula.load() find here

int main() {
  constexpr int m = 20, n = 37, groups = 3, k = groups * 32;
  auto x = tegula::Tensor::random_integers({m, k}, bf16, 1, -4, 5),
       weight = tegula::Tensor::random_integers({n, k / 2}, tegula::u8, 2, 0, 256);
  auto scales = tegula::Tensor::empty({n, groups}, f32);
  for (int j = 0; j < n; ++j)
    for (int g = 0; g < groups; ++g) scales.set({j, g}, std::ldexp(1, (j + g) % 5 - 2));  // exact in bf16
  auto y = tegula::Tensor::empty({m, n}, f32), expected = tegula::Tensor::empty({m, n}, f32);
  tegula::compile(product_of_nibbles(32, 32))(x, weight, scales, y);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) {
        int byte = static_cast<int>(weight.get({j, p / 2})), nibble = p % 2 == 0 ? byte & 15 : byte >> 4;
        sum += x.get({i, p}) * (nibble - 8) * scales.get({j, p / 32});
      }
      expected.set({i, j}, sum);
    }
  check("product_of_nibbles", y, expected, 0);
}
