#include "tegula/ops/merge_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/pieces/attention_table.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int ahead_from = 1024;  // elements of a tile

struct MergeInstance {
  DType type = f32, result = f32;
  std::optional<DType> sinks;
  int dim = 0, rows = 1;  // queries of a block
  auto fields() const {
    return std::tuple(type, labelled("out", result), labelled("sinks", sinks), labelled("d", dim),
                      labelled("q", rows));
  }
};

MergeInstance merge_plan(const Bound<MergeAttention>& c) {
  const int dim = c.small_dim("d");
  const auto most = static_cast<int>(std::max<std::int64_t>(c.dim("queries"), 1));
  return {c.type("outs"), c.type("out"), c.type_if("sinks"), dim,
          std::min(most, std::clamp(4096 / std::max(dim, 1), 1, 16))};
}

// The weight of a part beside one of the lse `top`. An lse of infinity is that of a part whose sink has all
// the weight.
Expr weight_of(const Expr& lse, const Expr& top) {
  return select(lse == -inf, 0, select(lse == top, 1, exp2((lse - top) * log2e)));
}

Kernel merge_program(const MergeInstance& c) {
  return kernel(instance_name("merge_attention", c), [&] {
    Dim parts("parts"), batch("batch"), queries("queries"), heads("heads");
    Tensor outs = input("outs", {parts, batch, queries, heads, c.dim}, c.type),
           lses = input("lses", {parts, batch, heads, queries}, f32);
    std::optional<Tensor> sinks;
    if (c.sinks) sinks.emplace(input("sinks", {heads}, *c.sinks));
    Tensor out = output("out", {batch, queries, heads, c.dim}, c.result),
           lse = output("lse", {batch, heads, queries}, f32);
    grid(ceildiv(queries, c.rows), heads, batch, [&](Index x, Index h, Index b) {
      Expr first = x * c.rows;
      Fragment top({c.rows}, f32, c.sinks ? Operand((*sinks)(h)) : Operand(-inf)), total({c.rows}, f32, 0),
          sum({c.rows, c.dim}, f32, 0);
      if (c.sinks) parallel(total, [&](Index i) { total(i) = select(top(i) == -inf, 0.f, 1.f); });
      const auto add = [&](Index p) {
        Fragment own_lse = load(lses.slice(p, b, h).at(first), {c.rows}),
                 own = load(outs.slice(p, b, all, h).at(first), {c.rows, c.dim}, f32), weights({c.rows}, f32),
                 kept({c.rows}, f32);
        parallel(top, [&](Index i) {
          Expr larger = max(top(i), own_lse(i));
          kept(i) = weight_of(top(i), larger);
          weights(i) = weight_of(own_lse(i), larger);
          total(i) = total(i) * kept(i) + weights(i);
          top(i) = larger;
        });
        parallel(sum, [&](Index i, Index j) {
          sum(i, j) = select(kept(i) == 0, 0, sum(i, j) * kept(i)) +
                      select(weights(i) == 0, 0, own(i, j) * weights(i));
        });
      };
      // Loads of small tiles are under way without slots.
      if (c.rows * c.dim >= ahead_from)
        pipelined(parts, {.stages = 3}, add);
      else
        serial(parts, add);
      parallel(sum, [&](Index i, Index j) { sum(i, j) *= select(total(i) == 0, 0, rcp(total(i))); });
      copy(sum, out.slice(b, all, h).at(first));
      parallel(top, [&](Index i) { top(i) = select(total(i) == 0, -inf, top(i) + log2(total(i)) * ln2); });
      copy(top, lse.slice(b, h).at(first));
    });
  });
}

void merge_formula(const Bound<MergeAttention>& c, Exact& exact) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto outs = exact.array("outs"), lses = exact.array("lses"), out = exact.array("out"),
             lse = exact.array("lse");
  const double* sinks = exact.data_if("sinks");
  const std::int64_t parts = c.dim("parts"), d = c.dim("d");
  for (std::int64_t b = 0; b < c.dim("batch"); ++b)
    for (std::int64_t h = 0; h < c.dim("heads"); ++h)
      for (std::int64_t i = 0; i < c.dim("queries"); ++i) {
        double top = sinks ? sinks[h] : -infinity;
        for (std::int64_t p = 0; p < parts; ++p) top = std::max(top, lses(p, b, h, i));
        const auto weight = [&](double own) {
          return own == -infinity ? 0 : own == top ? 1 : exact.rounded(std::exp(own - top));
        };
        double total = sinks ? weight(sinks[h]) : 0;
        for (std::int64_t p = 0; p < parts; ++p) total += weight(lses(p, b, h, i));
        lse(b, h, i) = total == 0 ? -infinity : top + std::log(total);
        for (std::int64_t p = 0; p < parts; ++p)
          if (const double own = weight(lses(p, b, h, i)) / total; own > 0)
            for (std::int64_t j = 0; j < d; ++j) out(b, i, h, j) += own * outs(p, b, i, h, j);
      }
}

}  // namespace

const OperatorSchema& merge_attention_schema() {
  using Op = MergeAttention;
  static const OperatorSchema table =
      Schema<Op>("merge_attention", "attention over all keys, merged from results over subsets of them")
          .in(&Op::outs, "outs",
              "layout=bshd ? parts [batch] queries heads d : parts [batch] heads queries d", floats,
              "results of attention over each part")
          .ordered()
          .in(&Op::lses, "lses", "parts [batch] heads queries", is(f32),
              "lse of each part: the natural logarithm of the sum of exp(score)")
          .remedy("give every result its lse, and check the layout")
          .in(&Op::sinks, "sinks", "heads", floats,
              "one logit per head that is added to the sum of the softmax but has no value")
          .remedy("give every head a sink")
          .option(&Op::layout, "layout", "order of batch, sequence, heads, features; lses have their own")
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Op::out, "out", "layout=bshd ? [batch] queries heads d : [batch] heads queries d",
               chosen_by("out_dtype", floats.types, "outs", bf16),
               "the weighted sums of values; 0 where no part has a key")
          .ordered()
          .out(&Op::lse, "lse", "[batch] heads queries", is(f32),
               "the lse over all keys; -inf where no part has one")
          .require("outs", "1 <= d & d <= 512", "1 to 512 features", "split the heads")
          .source("the merge of Dao et al. 2023, Flash-Decoding for long-context inference")
          .no_gradient("attention over all keys has one")
          .flops("2*parts*batch*queries*heads*d")
          .examples({{"small", "parts=3 batch=2 queries=5 heads=2 d=12"},
                     {"sinks_bhsd_bf16", "parts=2 batch=2 queries=3 heads=3 d=20 bf16 layout=bhsd sinks:f32"},
                     {"of_f32", "parts=4 queries=7 heads=2 d=64 out_dtype=bf16"}})
          .measured({{"8_of_32x64_bf16", "parts=8 batch=32 queries=1 heads=64 d=128 out_dtype=bf16"},
                     {"2_of_8192x32_bf16", "parts=2 batch=1 queries=8192 heads=32 d=128 bf16"}})
          .run(merge_plan, merge_program, merge_formula);
  return table;
}

}  // namespace tegula::ops
