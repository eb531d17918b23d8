// Two kernels for a program in C: `tegula build kernels.cpp --out bundle --name small`.
#include <tegula/lang.hpp>

using namespace tegula::lang;

Kernel scaled_sum() {
  return kernel("scaled_sum", [] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f32), Y = output("Y", {M}, f32);
    Expr factor = scalar("factor", f32);
    require(factor > 0, "the factor is positive");
    Tensor W = workspace("W", {M, N}, f32);
    grid(M, [&](Index m) {
      Fragment x({256}, f32);
      pipelined(ceildiv(N, 256), [&](Index step) {
        copy(X.slice(m).at(step * 256), x);
        parallel(x, [&](Index i) { x(i) = x(i) * factor; });
        copy(x, W.slice(m).at(step * 256));
      });
    });
    grid(M, [&](Index m) {
      Fragment sum({1}, f32, 0);
      pipelined(ceildiv(N, 256), [&](Index step) {
        Fragment x({1, 256}, f32);
        copy(W.at(m, step * 256), x);
        Fragment part = reduce_sum(x, 1);
        parallel(sum, [&](Index i) { sum(i) = sum(i) + part(i); });
      });
      copy(sum, Y.at(m));
    });
  });
}

Kernel product() {
  return kernel("product", [] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {N, K}, bf16), C = output("C", {M, N}, f32);
    grid(ceildiv(N, 64), ceildiv(M, 64), {.order = Order::grouped(4)}, [&](Index bx, Index by) {
      Fragment acc({64, 64}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 3}, [&](Index step) {
        Shared As({64, 64}, bf16), Bs({64, 64}, bf16);
        copy(A.at(by * 64, step * 64), As);
        copy(B.at(bx * 64, step * 64), Bs);
        gemm(As, Bs.T(), acc);
      });
      copy(acc, C.at(by * 64, bx * 64));
    });
  });
}

TEGULA_KERNELS(scaled_sum(), product())
