// The gradients of the lightning indexer: their table and formula.
#include <algorithm>

#include "ops/latent/indexer_backward_kernel.hpp"
#include "ops/latent/indexer_table.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<IndexerBackward>& c, Launch& launch) {
  IndexerBackwardKernel kernel{indexer_instance(c.call(), c->causal)};
  kernel.forward.queries = kernel.forward.together = 1;
  kernel.forward.keys = 64;
  launch(kernel, indexer_backward_kernel, {{"offset", c.dim("keys") - c.dim("queries")}});
}

void formula(const Bound<IndexerBackward>& c, Exact& exact) {
  IndexerRows rows = indexer_rows(c.call(), c->causal, exact);
  const auto dlogits = exact.array("dlogits"), dq = exact.array("dq"), dk = exact.array("dk"),
             dweights = exact.array("dweights");
  double* dscales = rows.scales == nullptr ? nullptr : exact.data("dk_scales");
  const std::int64_t queries = c.dim("queries"), keys = c.dim("keys"), heads = c.dim("heads"), d = c.dim("d");
  for (rows.b = 0; rows.b < c.dim("batch"); ++rows.b)
    for (std::int64_t i = 0; i < queries; ++i) {
      const auto [begin, end] = rows.seen(rows.b * queries + i);
      for (std::int64_t n = begin; n < end; ++n) {
        const double gradient =
            dlogits(rows.b, i, n) * (rows.scales == nullptr ? 1 : rows.scales[rows.b * keys + n]);
        for (std::int64_t h = 0; h < heads; ++h) {
          const double product = rows.product(exact, i, h, n);
          if (product <= 0) continue;
          dweights(rows.b, i, h) += gradient * product;
          if (dscales != nullptr)
            dscales[rows.b * keys + n] += dlogits(rows.b, i, n) * product * rows.weights(rows.b, i, h);
          const double of_product = exact.rounded(gradient * rows.weights(rows.b, i, h));
          for (std::int64_t f = 0; f < d; ++f) {
            dq(rows.b, i, h, f) += of_product * rows.k(rows.b, n, f);
            dk(rows.b, n, f) += of_product * rows.q(rows.b, i, h, f);
          }
        }
      }
    }
}

}  // namespace

const OperatorSchema& indexer_logits_backward_schema() {
  using Op = IndexerBackward;
  static const OperatorSchema table =
      Schema<Op>("indexer_logits_backward", "gradients of indexer_logits with respect to q, k and weights")
          .in(&Op::dlogits, "dlogits", "[batch] queries keys", is(f32),
              "gradient of logits; ignored where a query does not see a key")
          .follows()
          .with([](Schema<Op>& lines) { add_indexer(lines, floats); })
          .out(&Op::dq, "dq", "[batch] queries heads d", same_as("q"), "gradient of q")
          .out(&Op::dk, "dk", "[batch] keys d", same_as("k"), "gradient of k")
          .out(&Op::dweights, "dweights", "[batch] queries heads", same_as("weights"), "gradient of weights")
          .steps_of("q")
          .out(&Op::dk_scales, "dk_scales", "[batch] keys", is(f32), "gradient of k_scales")
          .steps_of("q")
          .when("k_scales")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: the lightning indexer, differentiated")
          .no_gradient("those of gradients are not implemented")
          .flops("8*batch*queries*keys*heads*d")
          .examples({{"small", "queries=5 keys=9 heads=3 d=8 k_scales causal"},
                     {"ranges_bf16",
                      "batch=2 queries=7 keys=100 heads=32 d=64 bf16 weights:f32 k_scales begins ends"},
                     {"f16", "queries=6 keys=70 heads=5 d=20 f16 weights:f32 causal"}})
          .measured({{"512_bf16", "queries=512 keys=512 heads=32 d=128 bf16 weights:f32 causal"},
                     {"8192_64_heads_causal_bf16",
                      "queries=8192 keys=8192 heads=64 d=128 bf16 weights:f32 causal"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
