#include "ops/linear/unit_rows.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int unit_rows = 16;  // of a tile

template <class F>
void each_tile(const UnitRowsKernel& c, const Tensor& x, const F& body) {
  grid(ceildiv(x.extent(1), unit_rows), x.extent(2), x.extent(0), [&](Index y, Index h, Index b) {
    const auto window = [&](const Tensor& t) { return t.slice(b, all, h).at(y * unit_rows); };
    Fragment tile = load(window(x), {unit_rows, (c.d + 15) / 16 * 16}, f32);
    Fragment factors = reduce_sum(map(tile, [&](Index i, Index j) { return tile(i, j) * tile(i, j); }));
    parallel(factors, [&](Index i) { factors(i) = rsqrt(factors(i) + least_norm); });
    parallel(tile, [&](Index i, Index j) { tile(i, j) *= factors(i); });
    body(tile, factors, window);
  });
}

}  // namespace

Kernel unit_rows_kernel(const UnitRowsKernel& c) {
  return kernel(instance_name("unit_rows", c), [&] {
    Dim batch("batch"), tokens("tokens"), heads("heads");
    Tensor x = input("x", {batch, tokens, heads, c.d}, c.type),
           y = output("y", {batch, tokens, heads, c.d}, c.type);
    each_tile(c, x, [&](Fragment& tile, const Fragment&, const auto& window) { copy(tile, window(y)); });
  });
}

Kernel unit_rows_gradient_kernel(const UnitRowsKernel& c) {
  return kernel(instance_name("unit_rows_gradient", c), [&] {
    Dim batch("batch"), tokens("tokens"), heads("heads");
    const Extents shape{batch, tokens, heads, c.d};
    Tensor x = input("x", shape, c.type), dy = input("dy", shape, f32), dx = output("dx", shape, c.type);
    each_tile(c, x, [&](Fragment& tile, const Fragment& factors, const auto& window) {
      Fragment given = load(window(dy), {unit_rows, (c.d + 15) / 16 * 16});
      Fragment along = reduce_sum(map(given, [&](Index i, Index j) { return given(i, j) * tile(i, j); }));
      parallel(given,
               [&](Index i, Index j) { given(i, j) = factors(i) * (given(i, j) - tile(i, j) * along(i)); });
      copy(given, window(dx));
    });
  });
}

}  // namespace tegula::ops
