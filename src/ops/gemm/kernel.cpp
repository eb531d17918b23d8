#include "ops/gemm/kernel.hpp"

#include <algorithm>
#include <optional>

namespace tegula::ops {

using namespace lang;
using lang::Tensor;  // not that of the runtime

namespace {

Expr activate(Activation activation, const Expr& x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      // Not max(): that would turn NaN into 0.
      return select(x < 0, 0, x);
    case Activation::gelu: {
      const float root = 0.7978845608028654f;  // √(2/π)
      return 0.5f * x * (1.f + tanh(root * (x + 0.044715f * x * x * x)));
    }
    case Activation::silu:
      return x / (1.f + exp2(-x * log2e));
  }
  throw InternalError("unknown activation");
}

void multiply(const GemmKernel& c, const Tensor& a, const Tensor& b, const Expr& row, const Expr& column,
              const Expr& inner, Fragment& sum) {
  const GemmTiles t = c.tiles;
  pipelined(ceildiv(inner, t.k), [&](Index step) {
    Expr k = step * t.k;
    Shared a_tile({c.transpose_a ? t.k : t.m, c.transpose_a ? t.m : t.k}, c.compute);
    Shared b_tile({c.transpose_b ? t.n : t.k, c.transpose_b ? t.k : t.n}, c.compute);
    copy(c.transpose_a ? a.at(k, row) : a.at(row, k), a_tile);
    copy(c.transpose_b ? b.at(column, k) : b.at(k, column), b_tile);
    if (c.transpose_a && c.transpose_b)
      gemm(a_tile.T(), b_tile.T(), sum);
    else if (c.transpose_a)
      gemm(a_tile.T(), b_tile, sum);
    else if (c.transpose_b)
      gemm(a_tile, b_tile.T(), sum);
    else
      gemm(a_tile, b_tile, sum);
  });
}

void finish(const GemmKernel& c, const std::optional<Expr>& scale, const Tensor& bias, const Expr& column,
            Fragment& sum) {
  if (scale) parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) * *scale; });
  if (c.bias) {
    Fragment added({c.tiles.n}, f32);
    copy(bias.at(column), added);
    parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j) + added(j)); });
  } else if (c.activation != Activation::none) {
    parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j)); });
  }
}

// Two warp groups hold the sums of 8-bit products twice; otherwise the compiler's choice.
int threads_of(const GemmKernel& c) {
  return c.compute.bits() == 8 && c.tiles.m % 64 == 0 ? std::min(256, 2 * c.tiles.m) : 0;
}

}  // namespace

Kernel gemm_kernel(const GemmKernel& c) {
  return kernel(instance_name("gemm", c), [&] {
    const GemmTiles t = c.tiles;
    Dim batch("batch"), m("m"), n("n"), k("k");
    Tensor a = c.transpose_a ? input("a", {batch, k, m}, c.type) : input("a", {batch, m, k}, c.type);
    Tensor b = c.transpose_b ? input("b", {batch, n, k}, c.type) : input("b", {batch, k, n}, c.type);
    Tensor out = output("out", {batch, m, n}, c.out);
    Tensor bias = c.bias ? input("bias", {n}, *c.bias) : out;
    std::optional<Expr> scale;
    if (c.scaled) scale.emplace(scalar("scale", f32));
    grid(ceildiv(n, t.n), ceildiv(m, t.m), batch, {.threads = threads_of(c), .order = Order::grouped(8)},
         [&](Index x, Index y, Index z) {
           Expr row = y * t.m, column = x * t.n;
           Fragment sum({t.m, t.n}, f32, 0);
           multiply(c, a.slice(z), b.slice(z), row, column, k, sum);
           finish(c, scale, bias, column, sum);
           copy(sum, out.slice(z).at(row, column));
         });
  });
}

}  // namespace tegula::ops
