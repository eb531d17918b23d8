#include "ops/latent/sparse_mla_backward_kernel.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

// A sink's share of a row's sum is exp(sink − lse), and its gradient −share · delta.
Kernel sink_gradient_kernel(const SinkGradientKernel& c) {
  constexpr int rows_of_sum = 1024;  // of a step of the sum over queries
  return kernel(instance_name("sparse_mla_sink_gradient", c), [&] {
    Dim batch("batch"), queries("queries"), kv_heads("kv_heads"), group("group");
    Tensor lse = input("lse", {batch, queries, kv_heads, group}, f32);
    Tensor delta = input("delta", {batch, queries, kv_heads, group}, f32);
    Tensor sinks = input("sinks", {kv_heads, group}, c.type),
           dsinks = output("dsinks", {kv_heads, group}, f32);
    grid(group, kv_heads, [&](Index member, Index h) {
      Expr sink = f32(sinks(h, member));
      Fragment sums({rows_of_sum}, f32, 0);
      serial(batch, [&](Index b) {
        serial(ceildiv(queries, rows_of_sum), [&](Index n) {
          Expr first = n * rows_of_sum;
          Fragment row_lse = load(lse.slice(b, all, h, member).at(first), {rows_of_sum}),
                   row_delta = load(delta.slice(b, all, h, member).at(first), {rows_of_sum});
          parallel(sums, [&](Index i) {
            Expr share = select(sink == inf, 1, exp2((sink - row_lse(i)) * log2e));
            Expr counts = first + i < queries && sink != -inf;
            sums(i) -= select(counts, share * row_delta(i), 0);
          });
        });
      });
      dsinks(h, member) = reduce_sum(sums).scalar();
    });
  });
}

}  // namespace tegula::ops
