// The indexer's logits for the keys of a cache: its table and its formula.
#include "tegula/ops/paged_indexer.hpp"

#include <limits>

#include "ops/decode/table.hpp"
#include "ops/latent/indexer_kernel.hpp"
#include "ops/latent/indexer_table.hpp"
#include "ops/schema/sums_of_8_bits.hpp"

namespace tegula::ops {

namespace {

using Op = PagedIndexerLogits;

void run(const Bound<Op>& c, Launch& launch) {
  IndexerKernel kernel = indexer_instance(c.call(), c->causal);
  kernel.form = {c.has("block_table"), c.has("cache_seqlens")};
  if (kernel.form.paged) kernel.form.page = page_of_form(c.dim("page_size"), kernel.keys);
  kernel.form.gathers = !c.on_gpu() && kernel.form.page == 1;
  launch(kernel, indexer_kernel,
         {{"k", c.formed("k_cache")},
          {"parts", indexer_splits(c.call(), kernel, c.dim("queries"), c.dim("room"))},
          {"offset", c.dim("room") - c.dim("queries")}});
}

void formula(const Bound<Op>& c, Exact& exact) {
  const auto q = exact.array("q"), k = exact.array("k_cache"), weights = exact.array("weights"),
             logits = exact.array("logits");
  const std::int64_t queries = c.dim("queries"), features = c.dim("d");
  const bool of_8_bits = exact.steps() != f64 && c.type("q").bits() == 8;
  const auto logit = [&](std::int64_t b, std::int64_t i, std::int64_t page, std::int64_t row) {
    double sum = 0;
    for (std::int64_t h = 0; h < c.dim("heads"); ++h) {
      const double product =
          sum_of_8_bits(features, of_8_bits, [&](std::int64_t d) { return q(b, i, h, d) * k(page, row, d); });
      sum += std::max(product, 0.0) * weights(b, i, h);
    }
    return c.has("k_scales") ? sum * exact.array("k_scales")(page, row) : sum;
  };
  for (std::int64_t b = 0; b < c.dim("batch"); ++b) {
    const SequencePlaces sequence(c.call(), b);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t n = 0; n < c.dim("room"); ++n) {
        const bool seen = n < sequence.length && (!c->causal || n <= sequence.length - queries + i) &&
                          sequence.places[static_cast<std::size_t>(n)].first >= 0;
        if (!seen) {
          logits(b, i, n) = -std::numeric_limits<double>::infinity();
          continue;
        }
        const auto& [page, row] = sequence.places[static_cast<std::size_t>(n)];
        logits(b, i, n) = logit(b, i, page, row);
      }
  }
}

}  // namespace

const OperatorSchema& paged_indexer_logits_schema() {
  static const OperatorSchema table =
      Schema<Op>("paged_indexer_logits",
                 "weighted sums over heads of relu(q k^T) for the keys of a cache, also in pages")
          .in(&Op::q, "q", "batch queries heads d", one_of({f32, f16, bf16, e4m3}),
              "queries of the last tokens")
          .unit_stride()
          .in(&Op::k_cache, "k_cache", cache_dims("d"), same_as("q"), "keys, which all heads share")
          .unit_stride()
          .remedy("give it the features of q, and a row for each sequence or pages with a block table")
          .in(&Op::weights, "weights", "batch queries heads", floats, "weights of the heads of each query")
          .remedy("give every head of a query one")
          .with(add_cache_places<PagedIndexerLogits>)
          .in(&Op::k_scales, "k_scales", "block_table ? pages page_size : batch keys", is(f32),
              "factors of the keys' logits")
          .remedy("give every key one")
          .with(add_indexer_rules<Op>)
          .out(&Op::logits, "logits", "batch queries room", is(f32),
               "k_scales * sum over heads of weights * relu(q k^T); -inf where a query does not see a key")
          .steps_of("q")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: the lightning indexer")
          .no_gradient("a cache is for inference; indexer_logits has one")
          .flops("2*batch*queries*room*heads*d")
          .examples({{"small", "batch=2 queries=2 keys=19 heads=3 d=8 cache_seqlens k_scales"},
                     {"pages_e4m3",
                      "batch=2 queries=2 pages=7 page_size=64 table_width=3 heads=32 d=64 e4m3 weights:f32 "
                      "block_table cache_seqlens k_scales"},
                     {"pages_of_5_bf16",
                      "batch=2 queries=1 pages=9 page_size=5 table_width=6 heads=4 d=20 bf16 weights:f32 "
                      "block_table cache_seqlens causal=false"}})
          .measured({{"128x8k_pages_of_64_e4m3",
                      "batch=128 queries=2 pages=16384 page_size=64 table_width=128 heads=64 d=128 e4m3 "
                      "weights:f32 block_table cache_seqlens k_scales"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
