// Logits of the indexer and the choice of the largest, for some queries at a time.
#include <algorithm>

#include "ops/latent/indexer_kernel.hpp"
#include "ops/latent/indexer_table.hpp"
#include "ops/latent/topk_table.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t most_logits = std::int64_t{1} << 27;  // that are in memory, f32

TensorRef some(const TensorRef& of, std::int64_t begin, std::int64_t end) {
  return of.rank() == 0 ? of : of.slice(1, begin, end);
}

// Queries [begin, end); of the causal ones the last sees `keys` keys.
void choose(const Bound<IndexerTopk>& c, std::int64_t begin, std::int64_t end, Launch& launch) {
  const std::int64_t offset = c.dim("keys") - c.dim("queries") + begin,
                     keys = c->causal ? std::clamp<std::int64_t>(end + c.dim("keys") - c.dim("queries"), 0,
                                                                 c.dim("keys"))
                                      : c.dim("keys");
  const IndexerKernel kernel = indexer_instance(c.call(), c->causal);
  const Tensor logits = launch.scratch({c.dim("batch"), end - begin, keys}, f32);
  const auto formed = [&](const char* name) { return c.has(name) ? c.formed(name) : TensorRef(); };
  const TensorRef scales = formed("k_scales"), begins = some(formed("begins"), begin, end),
                  ends = some(formed("ends"), begin, end);
  launch(kernel, indexer_kernel,
         {{"q", some(c.formed("q"), begin, end)},
          {"k", c.formed("k").slice(1, 0, keys)},
          {"weights", some(c.formed("weights"), begin, end)},
          {"logits", logits},
          {"k_scales", scales.rank() == 0 ? scales : scales.slice(1, 0, keys)},
          {"begins", begins},
          {"ends", ends},
          {"parts", indexer_splits(c.call(), kernel, end - begin, c.dim("keys"))},
          {"offset", offset}});
  // Keys that a query does not see have the logit −∞.
  launch(topk_instance(c.dim("batch") * (end - begin), keys, c->count, false, false, c.has("page_table")),
         topk_kernel, {{"scores", logits}, {"out", some(c.formed("out"), begin, end)}});
}

void run(const Bound<IndexerTopk>& c, Launch& launch) {
  const std::int64_t queries = c.dim("queries"),
                     of_query = std::max<std::int64_t>(c.dim("batch") * c.dim("keys"), 1),
                     at_once = std::clamp<std::int64_t>(most_logits / of_query, 1,
                                                        std::max<std::int64_t>(queries, 1));
  for (std::int64_t begin = 0; begin < queries; begin += at_once)
    choose(c, begin, std::min(begin + at_once, queries), launch);
}

void formula(const Bound<IndexerTopk>& c, Exact& exact) {
  IndexerRows rows = indexer_rows(c.call(), c->causal, exact);
  const std::int64_t queries = c.dim("queries"), keys = c.dim("keys");
  auto* out = exact["out"].data_as<std::int32_t>();
  std::vector<double> logits(static_cast<std::size_t>(keys));
  for (rows.b = 0; rows.b < c.dim("batch"); ++rows.b)
    for (std::int64_t i = 0; i < queries; ++i, out += c->count) {
      const auto [begin, end] = rows.seen(rows.b * queries + i);
      for (std::int64_t n = begin; n < end; ++n)
        logits[static_cast<std::size_t>(n)] = rows.logit(exact, i, n);
      write_largest(logits.data(), begin, end, std::span(out, static_cast<std::size_t>(c->count)),
                    PageTable(c.call(), exact, rows.b, c->page_size));
    }
}

}  // namespace

const OperatorSchema& indexer_topk_schema() {
  using Op = IndexerTopk;
  static const OperatorSchema table =
      Schema<Op>("indexer_topk",
                 "the keys with the largest logits of the indexer, for every query, ascending")
          .with([](Schema<Op>& lines) {
            add_indexer(lines, one_of({f32, f16, bf16, e4m3}));
          })
          .with(add_count<Op>)
          .out(&Op::out, "out", "[batch] queries count", is(i32),
               "key numbers, or rows of pages; -1 where fewer exist")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: DeepSeek Sparse Attention")
          .no_gradient("it chooses")
          .flops("2*batch*queries*keys*heads*d")
          .examples(
              {{"small", "queries=5 keys=9 heads=3 d=8 count=4 k_scales causal"},
               {"pages_e4m3",
                "batch=2 queries=3 keys=100 heads=8 d=32 e4m3 weights:f32 k_scales begins ends count=20 "
                "page_table page_size=16 pages=5"}})
          .measured(
              {{"1024_bf16", "queries=1024 keys=1024 heads=32 d=128 bf16 weights:f32 causal count=256"},
               {"32768_e4m3",
                "queries=32768 keys=32768 heads=32 d=128 e4m3 weights:f32 k_scales causal count=2048"},
               {"32768_bf16", "queries=32768 keys=32768 heads=32 d=128 bf16 weights:f32 causal count=2048"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
