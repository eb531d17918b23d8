#include "ops/pieces/rows.hpp"

#include <limits>

#include "ops/schema/instance.hpp"

namespace tegula::ops {

using namespace lang;

Fragment root_mean_square_factors(const Fragment& x, const Expr& eps) {
  Fragment factors = reduce_sum(map(x, [&](Index i, Index j) { return x(i, j) * x(i, j); }));
  const float share = 1.f / static_cast<float>(x.extent(1));
  parallel(factors, [&](Index i) { factors(i) = rsqrt(factors(i) * share + eps); });
  return factors;
}

void add_parts(const Tensor& parts, const Tensor& total) {
  constexpr int columns = 32, rows = 32;
  grid(ceildiv(total.extent(0), columns), [&](Index block) {
    Fragment sum({columns}, f32, 0);
    serial(ceildiv(parts.extent(0), rows), [&](Index step) {
      Fragment part = load(parts.at(step * rows, block * columns), {rows, columns});
      reduce_sum(part, sum, 0);
    });
    copy(sum, total.at(block * columns));
  });
}

ExponentialSums::ExponentialSums(int piece)
    : top({piece}, f32, std::numeric_limits<float>::lowest()), sum({piece}, f32, 0) {}

void ExponentialSums::add(const Fragment& x) {
  parallel(x, [&](Index j) {
    Expr above = x(j) - top(j), other = exp2(-abs(above) * log2e);
    sum(j) = select(above > 0, sum(j) * other + 1.f, sum(j) + other);
    top(j) = max(top(j), x(j));
  });
}

ExponentialSums::Total ExponentialSums::total() {
  Expr largest = reduce_max(top).scalar();
  parallel(sum, [&](Index j) { sum(j) *= exp2((top(j) - largest) * log2e); });
  return {largest, reduce_sum(sum).scalar()};
}

Kernel row_sum_kernel(const RowSumKernel& c) {
  constexpr int rows = 64, columns = 32, steps = 8;  // of a tile, and tiles of a part
  return kernel(instance_name("row_sum", c), [&] {
    Dim batch("batch"), tokens("rows"), n("n");
    Tensor x = input("x", {batch, tokens, n}, c.type), total = output("total", {n}, f32);
    Expr pieces = ceildiv(tokens, rows * steps);
    Tensor parts = workspace("parts", {batch * pieces, n}, f32);
    grid(ceildiv(n, columns), pieces, batch, [&](Index j, Index piece, Index b) {
      Fragment sum({columns}, f32, 0);
      serial(steps, [&](Index step) {
        Expr row = (piece * steps + step) * rows;
        reduce_sum(load(x.slice(b).at(row, j * columns), {rows, columns}, f32), sum, 0);
      });
      copy(sum, parts.slice(b * pieces + piece).at(j * columns));
    });
    add_parts(parts, total);
  });
}

}  // namespace tegula::ops
