#include "ops/linear/normalize.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int rows = 16;  // of a tile

struct Weighted {
  Dim batch{"batch"}, tokens{"tokens"}, heads{"heads"};
  int d_v;
  Tensor sums;

  explicit Weighted(const NormalizeKernel& c)
      : d_v(c.d_v), sums(input("sums", {batch, tokens, heads, c.d_v + 1}, f32)) {}

  Extents columns() const { return {batch, tokens, heads, d_v}; }
  int width() const { return (d_v + 16) / 16 * 16; }
  // For the rows of a head from `row` on: their sums, the last column included, and the reciprocals.
  template <class F>
  void each(const F& body) const {
    grid(ceildiv(tokens, rows), heads, batch, [&](Index y, Index h, Index b) {
      Expr row = y * rows;
      Fragment tile = load(sums.slice(b, all, h).at(row), {rows, width()}), shares({rows}, f32);
      copy(sums.slice(b, all, h, d_v).at(row), shares);
      parallel(shares, [&](Index i) { shares(i) = 1 / (shares(i) + least_weight); });
      body(tile, shares, b, h, row);
    });
  }
};

}  // namespace

Kernel normalize_kernel(const NormalizeKernel& c) {
  return kernel(instance_name("normalize", c), [&] {
    Weighted in(c);
    Tensor out = output("out", in.columns(), c.type);
    in.each([&](Fragment& tile, const Fragment& shares, const Expr& b, const Expr& h, const Expr& row) {
      parallel(tile, [&](Index i, Index j) { tile(i, j) *= shares(i); });
      copy(tile, out.slice(b, all, h).at(row));
    });
  });
}

Kernel normalize_gradient_kernel(const NormalizeKernel& c) {
  return kernel(instance_name("normalize_gradient", c), [&] {
    Weighted in(c);
    Tensor dout = input("dout", in.columns(), c.type);
    Tensor dsums = output("dsums", {in.batch, in.tokens, in.heads, c.d_v + 1}, c.type);
    in.each([&](Fragment& tile, const Fragment& shares, const Expr& b, const Expr& h, const Expr& row) {
      Fragment given = load(dout.slice(b, all, h).at(row), {rows, in.width()}, f32);
      Fragment along = reduce_sum(map(given, [&](Index i, Index j) { return given(i, j) * tile(i, j); }));
      parallel(given, [&](Index i, Index j) {
        given(i, j) = select(j == c.d_v, -along(i) * shares(i) * shares(i), given(i, j) * shares(i));
      });
      copy(given, dsums.slice(b, all, h).at(row));
    });
  });
}

}  // namespace tegula::ops
