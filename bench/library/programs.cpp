#include "programs.hpp"

namespace tegula::bench::programs {

using namespace lang;
using lang::Tensor;  // not that of the runtime

lang::Kernel row_scaling() {
  return kernel("bench_row_scaling", [] {
    Dim n("n");
    Tensor x = input("x", {n, 256}, f32), y = output("y", {n, 256}, f32);
    grid(ceildiv(n, 32), [&](Index b) {
      Fragment t = load(x.at(b * 32), {32, 256});
      parallel(t, [&](Index i, Index j) { t(i, j) = t(i, j) * 2.0f + 1.0f; });
      copy(t, y.at(b * 32));
    });
  });
}

lang::Kernel row_softmax() {
  return kernel("bench_row_softmax", [] {
    Dim n("n");
    Tensor x = input("x", {n, 512}, f32), y = output("y", {n, 512}, f32);
    grid(ceildiv(n, 16), [&](Index b) {
      Fragment t = load(x.at(b * 16), {16, 512}), top({16}, f32), sum({16}, f32, 0);
      fill(top, -inf);
      reduce_max(t, top);
      parallel(t, [&](Index i, Index j) { t(i, j) = exp2((t(i, j) - top(i)) * log2e); });
      reduce_sum(t, sum);
      parallel(t, [&](Index i, Index j) { t(i, j) /= sum(i); });
      copy(t, y.at(b * 16));
    });
  });
}

lang::Kernel product_and_exponential() {
  return kernel("bench_product_and_exponential", [] {
    Dim m("m"), n("n"), k("k");
    Tensor a = input("a", {m, k}, f32), b = input("b", {n, k}, f32), c = output("c", {m, n}, f32);
    grid(ceildiv(n, 96), ceildiv(m, 96), [&](Index x, Index y) {
      Fragment sum({96, 96}, f32, 0);
      pipelined(ceildiv(k, 48), {.stages = 2}, [&](Index step) {
        Shared left({96, 48}, f32), right({96, 48}, f32);
        copy(a.at(y * 96, step * 48), left);
        copy(b.at(x * 96, step * 48), right);
        gemm(left, right.T(), sum);
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) = exp2(-sum(i, j)); });
      copy(sum, c.at(y * 96, x * 96));
    });
  });
}

}  // namespace tegula::bench::programs
