#include "ops/linear/gate_tiles.hpp"
#include "ops/linear/scan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Kernel gate_sums_kernel(const GateKernel& c) {
  return kernel(instance_name("gate_sums", c), [&] {
    Sequences s(c.packed);
    Dim heads("heads");
    LazyDim chunks("chunks");
    Tensor sums = output("sums", c.reverse ? s.shape({heads}) : s.vectors(chunks, heads, c.rows()), f32);
    Tensor token = c.token ? input("g", s.shape({heads}), *c.token) : sums;
    Tensor head = c.head ? input("g_gamma", {heads}, *c.head) : sums;
    s.declare_chunks();
    // Gates of heads alone have no tokens.
    Expr count = c.packed || c.reverse ? s.chunks(c.rows()) : Expr(chunks);
    each_gate_tile(s, heads, count, c.rows(), [&](const GateTiles& at) {
      Shared tile({at.rows, at.heads_of_tile}, f32);
      if (c.token)
        copy(at.of_tokens(token), tile);
      else
        fill(tile, 0);
      if (c.reverse) return copy(scan_sum(tile, {.dim = 0, .reverse = true}), at.of_tokens(sums));
      Shared gates = at.turned();
      parallel(tile, [&](Index i, Index h) {
        assert_that(tile(i, h) <= 0, "g are logarithms of decays: at most 0");
        Var gate = tile(i, h);
        if (c.head) {
          Expr of_head = f32(head(at.first + h));
          assert_that(of_head <= 0, "g_gamma are logarithms of decays: at most 0");
          gate += of_head;
        }
        gates(h, i) = gate * log2e;
      });
      copy(scan_sum(gates), at.of_chunks(sums));
    });
  });
}

}  // namespace tegula::ops
