#include "ops/linear/scan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Kernel gate_sums_kernel(const GateKernel& c) {
  constexpr int heads_of_tile = 32;
  const int rows = c.rows();
  return kernel(instance_name("gate_sums", c), [&] {
    Sequences s(c.packed);
    Dim heads("heads");
    Tensor sums = output("sums", s.shape({heads}), f32);
    Tensor token = c.token ? input("g", s.shape({heads}), *c.token) : sums;
    Tensor head = c.head ? input("g_gamma", {heads}, *c.head) : sums;
    s.declare_chunks();
    grid(ceildiv(heads, heads_of_tile), s.chunks(rows), s.parts(), [&](Index x, Index y, Index z) {
      const auto [n, chunk] = s.place(y, z, rows);
      Expr row = chunk * rows, first = x * heads_of_tile;
      s.leave_unless(n, row);
      Shared tile({rows, heads_of_tile}, f32);
      if (c.token)
        copy(s.rows(token, n).at(row, first), tile);
      else
        fill(tile, 0);
      // Before the sums, which wait for shared memory alone.
      if (c.head || !c.reverse)
        parallel(tile, [&](Index i, Index h) {
          if (!c.reverse) assert_that(tile(i, h) <= 0, "g are logarithms of decays: at most 0");
          if (!c.head) return;
          Expr gate = f32(head(first + h));
          assert_that(gate <= 0, "g_gamma are logarithms of decays: at most 0");
          tile(i, h) += gate;
        });
      parallel(heads_of_tile, [&](Index h) {
        Var sum = 0.0f;
        serial(rows, [&](Index i) {
          Expr at = c.reverse ? rows - 1 - i : Expr(i);
          sum += tile(at, h);
          tile(at, h) = sum;
        });
      });
      copy(tile, s.rows(sums, n).at(row, first));
    });
  });
}

}  // namespace tegula::ops
