#include <algorithm>
#include <limits>

#include "ops/latent/indexer_kernel.hpp"
#include "ops/latent/indexer_table.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/sums_of_8_bits.hpp"

namespace tegula::ops {

namespace {

int rounded_up(int extent, int unit) { return (extent + unit - 1) / unit * unit; }

// Tensor cores take 8-bit operands of Hopper's; others are widened, exactly, where they are copied.
DType tile_type(DType type, const BoundCall& c) {
  if (type.bits() != 8) return multiplied_type(type, c.on_gpu());
  if (!c.on_gpu()) return multiplied_type(bf16, false);
  return has_copy_engine(c) ? type : f16;
}

// Queries of a CPU's block: bytes are widened once for all of them.
int queries_of_cpu(const IndexerKernel& kernel, std::int64_t queries) {
  if (kernel.type.bits() != 8) return kernel.compute == f32 || queries == 1 ? 1 : 2;
  return static_cast<int>(std::min<std::int64_t>(4, queries));
}

}  // namespace

IndexerKernel indexer_instance(const BoundCall& c, bool causal) {
  IndexerKernel kernel;
  kernel.type = c.type("q"), kernel.compute = tile_type(kernel.type, c), kernel.weights = c.type("weights");
  kernel.heads = static_cast<int>(c.dim("heads")), kernel.dim = static_cast<int>(c.dim("d"));
  const auto has = [&](const char* name) { return c.schema().find_tensor(name) != nullptr && c.has(name); };
  kernel.scales = has("k_scales"), kernel.begins = has("begins"), kernel.ends = has("ends");
  kernel.causal = causal;
  // Rows of whole blocks of 32 bytes, or of 64 where there are more.
  const int unit = 32 / kernel.compute.bytes();
  kernel.tile_heads = rounded_up(kernel.heads, c.on_gpu() ? 16 : 1);
  kernel.tile_features =
      !c.on_gpu() ? kernel.dim : rounded_up(kernel.dim, kernel.dim <= unit ? unit : 2 * unit);
  const bool small = kernel.compute == f32;
  const std::int64_t queries = c.dim("queries");
  kernel.queries = small || kernel.tile_heads > 64 || queries == 1 ? 1 : 2;
  if (!c.on_gpu()) kernel.queries = queries_of_cpu(kernel, queries);
  // Heads of several queries are columns of one product, whose keys are read once for all of them: with 64
  // columns, both operands take all that shared memory gives. Few queries wait for memory instead.
  if (!small && has_copy_engine(c) && kernel.tile_heads <= 32 && queries >= 4)
    kernel.queries = kernel.together = 4;
  else if (kernel.compute.bits() == 8 && kernel.tile_heads <= 64 && queries >= 4)
    kernel.together = 2;
  kernel.keys = !c.on_gpu() ? 128 : small ? 64 : kernel.compute.bits() == 8 ? 256 : 128;
  return kernel;
}

std::int64_t indexer_splits(const BoundCall& c, const IndexerKernel& kernel, std::int64_t queries,
                            std::int64_t keys) {
  const std::int64_t blocks = (queries + kernel.queries - 1) / kernel.queries * c.dim("batch"),
                     steps = (keys + kernel.keys - 1) / kernel.keys,
                     wanted = (c.on_gpu() ? 4 * gpu_processors : planned_processors) /
                              std::max<std::int64_t>(blocks, 1);
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(steps, 1));
}

IndexerRows indexer_rows(const BoundCall& c, bool causal, Exact& exact) {
  const std::int64_t keys = c.dim("keys"), queries = c.dim("queries");
  IndexerRows rows;
  rows.q = exact.array("q"), rows.k = exact.array("k"), rows.weights = exact.array("weights");
  rows.scales = exact.data_if("k_scales");
  rows.of_8_bits = c.type("q").bits() == 8;
  const auto* begins = c.has("begins") ? exact["begins"].data_as<std::int32_t>() : nullptr;
  const auto* ends = c.has("ends") ? exact["ends"].data_as<std::int32_t>() : nullptr;
  // `query` counts through all batches.
  rows.seen = [=](std::int64_t query) {
    const std::int64_t begin = begins == nullptr ? 0 : std::max<std::int64_t>(begins[query], 0);
    std::int64_t end = ends == nullptr ? keys : std::min<std::int64_t>(ends[query], keys);
    if (causal) end = std::min(end, query % queries + keys - queries + 1);
    return std::pair(begin, end);
  };
  return rows;
}

double IndexerRows::product(const Exact& exact, std::int64_t i, std::int64_t h, std::int64_t n) const {
  const std::int64_t features = q.extents[3];
  const double *left = &q(b, i, h, 0), *right = &k(b, n, 0);
  return sum_of_8_bits(features, of_8_bits && exact.steps() != f64,
                       [&](std::int64_t d) { return left[d] * right[d]; });
}

double IndexerRows::logit(const Exact& exact, std::int64_t i, std::int64_t n) const {
  double sum = 0;
  for (std::int64_t h = 0; h < q.extents[2]; ++h)
    sum += std::max(product(exact, i, h, n), 0.0) * weights(b, i, h);
  return scales == nullptr ? sum : sum * scales[b * k.extents[1] + n];
}

namespace {

void run(const Bound<Indexer>& c, Launch& launch) {
  const IndexerKernel kernel = indexer_instance(c.call(), c->causal);
  launch(kernel, indexer_kernel,
         {{"parts", indexer_splits(c.call(), kernel, c.dim("queries"), c.dim("keys"))},
          {"offset", c.dim("keys") - c.dim("queries")}});
}

void formula(const Bound<Indexer>& c, Exact& exact) {
  IndexerRows rows = indexer_rows(c.call(), c->causal, exact);
  const auto logits = exact.array("logits");
  const std::int64_t queries = c.dim("queries"), keys = c.dim("keys");
  for (rows.b = 0; rows.b < c.dim("batch"); ++rows.b)
    for (std::int64_t i = 0; i < queries; ++i) {
      const auto [begin, end] = rows.seen(rows.b * queries + i);
      for (std::int64_t n = 0; n < keys; ++n)
        logits(rows.b, i, n) =
            n >= begin && n < end ? rows.logit(exact, i, n) : -std::numeric_limits<double>::infinity();
    }
}

}  // namespace

const OperatorSchema& indexer_logits_schema() {
  using Op = Indexer;
  static const OperatorSchema table =
      Schema<Op>("indexer_logits", "weighted sums over heads of relu(q k^T), by which queries select keys")
          .with([](Schema<Op>& lines) {
            add_indexer(lines, one_of({f32, f16, bf16, e4m3}));
          })
          .out(&Op::logits, "logits", "[batch] queries keys", is(f32),
               "k_scales * sum over heads of weights * relu(q k^T); -inf where a query does not see a key")
          .steps_of("q")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: the lightning indexer")
          .gradient("indexer_logits_backward")
          .flops("2*batch*queries*keys*heads*d")
          .examples({{"small", "queries=5 keys=9 heads=3 d=8 k_scales causal"},
                     {"ranges_e4m3",
                      "batch=2 queries=7 keys=300 heads=32 d=64 e4m3 weights:f32 k_scales begins ends"},
                     {"ranges_bf16", "batch=2 queries=7 keys=300 heads=20 d=40 bf16 weights:f32 begins ends"},
                     {"one_query_bf16", "batch=3 queries=1 keys=140 heads=5 d=20 bf16 weights:f32 ends"}})
          .measured(
              {{"1024_bf16", "queries=1024 keys=1024 heads=32 d=128 bf16 weights:f32 causal"},
               {"8192_64_heads_e4m3", "queries=8192 keys=8192 heads=64 d=128 e4m3 weights:f32 k_scales"},
               {"8192_64_heads_causal_e4m3",
                "queries=8192 keys=8192 heads=64 d=128 e4m3 weights:f32 k_scales causal"},
               {"decode_e4m3",
                "batch=128 queries=2 keys=8192 heads=64 d=128 e4m3 weights:f32 k_scales causal"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
