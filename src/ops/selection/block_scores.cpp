#include "ops/pieces/heads.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/schema.hpp"
#include "ops/selection/kernels.hpp"
#include "ops/selection/selection.hpp"

namespace tegula::ops {

namespace {

double scale_of(const Bound<BlockScores>& c) {
  return c->scale ? *c->scale : 1 / std::sqrt(static_cast<float>(c.dim("d")));
}

// Of a GPU, whose shared memory holds the means of all blocks of a tile.
void fit_shared_memory(BlockScoresKernel& kernel) {
  while ((kernel.rows + kernel.columns) * kernel.dim * std::int64_t{f32.bytes()} > bytes_of_tiles)
    (kernel.rows > kernel.columns ? kernel.rows : kernel.columns) /= 2;
}

BlockScoresKernel plan(const Bound<BlockScores>& c) {
  const auto tile = [&](const char* blocks) {
    return c.dim(blocks) <= 16 ? 16 : c.dim(blocks) <= 64 ? 64 : 128;
  };
  BlockScoresKernel kernel{.type = c.type("q"),
                           .dim = c.small_dim("d"),
                           .q_block = c->q_block_size,
                           .k_block = c->k_block_size,
                           .group = c.small_dim("pooled"),
                           .causal = c->causal,
                           .rows = tile("q_blocks"),
                           .columns = tile("k_blocks")};
  if (c.on_gpu())
    fit_shared_memory(kernel);
  else
    kernel.summed = summed_on_cpu;
  return kernel;
}

void run(const Bound<BlockScores>& c, Launch& launch) {
  const TensorRef q = split_heads(as_bshd(c["q"], c->layout), 2, c.dim("pooled"));
  launch(plan(c), block_scores_kernel, {{"q", q}, {"k", as_bshd(c["k"], c->layout)}, {"scale", scale_of(c)}});
}

// Means over blocks of tokens and over the `group` heads of a result head: [batch, heads / group, blocks, d].
Tensor block_means(const Tensor& x, int block, std::int64_t group) {
  const std::int64_t tokens = x.size(1), blocks = (tokens + block - 1) / block;
  Tensor means = Tensor::zeros({x.size(0), x.size(2) / group, blocks, x.size(3)}, f64);
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t at = t / block, count = std::min<std::int64_t>(block, tokens - at * block) * group;
      for (std::int64_t h = 0; h < x.size(2); ++h)
        for (std::int64_t d = 0; d < x.size(3); ++d)
          means.at<double>(b, h / group, at, d) += x.at<double>(b, t, h, d) / static_cast<double>(count);
    }
  return means;
}

void formula(const Bound<BlockScores>& c, Exact& exact) {
  const auto ordered = [&](const char* name) {
    return c->layout == Layout::bshd ? exact[name] : exact[name].transpose(1, 2);
  };
  const Tensor x = block_means(ordered("q"), c->q_block_size, c.dim("pooled"));
  const Tensor y = block_means(ordered("k"), c->k_block_size, 1), out = exact["out"];
  const std::int64_t queries = c.dim("queries"), shift = c.dim("keys") - queries;
  const double scale = c->scale ? *c->scale : 1 / std::sqrt(static_cast<double>(c.dim("d")));
  for (std::int64_t b = 0; b < out.size(0); ++b)
    for (std::int64_t h = 0; h < out.size(1); ++h)
      for (std::int64_t i = 0; i < out.size(2); ++i)
        for (std::int64_t j = 0; j < out.size(3); ++j) {
          double sum = 0;
          for (std::int64_t d = 0; d < x.size(3); ++d)
            sum += x.at<double>(b, h, i, d) * y.at<double>(b, h / (out.size(1) / y.size(1)), j, d);
          const std::int64_t last = std::min((i + 1) * c->q_block_size, queries) - 1;
          const bool seen = !c->causal || j * c->k_block_size <= last + shift;
          out.at<double>(b, h, i, j) = seen ? sum * scale : -std::numeric_limits<double>::infinity();
        }
}

}  // namespace

const OperatorSchema& block_scores_schema() {
  using Op = BlockScores;
  static const OperatorSchema table =
      Schema<Op>("block_scores", "products of the means of query blocks and key blocks")
          .in(&Op::q, "q", "layout=bshd ? batch queries group*kv_heads d : batch group*kv_heads queries d",
              floats, "queries")
          .unit_stride()
          .remedy("give q a multiple of the heads of k, and check the layout")
          .in(&Op::k, "k", "layout=bshd ? batch keys kv_heads d : batch kv_heads keys d", same_as("q"),
              "keys")
          .unit_stride()
          .remedy("give both one batch and as many features, and check the layout")
          .option(&Op::q_block_size, "q_block_size", "queries of a block", block_size)
          .option(&Op::k_block_size, "k_block_size", "keys of a block", block_size)
          .option(&Op::layout, "layout", "order of batch, sequence, heads, features")
          .option(&Op::causal, "causal", "blocks that no query of the row sees score -inf")
          .option(&Op::per_kv_head, "per_kv_head", "one row for the heads of a group")
          .option(&Op::scale, "scale", "of the scores, 1/sqrt(d) unless given",
                  {0, {}, true, "a positive finite number", "negate q for a negative scale"})
          .let("pooled", "per_kv_head ? max(group, 1) : 1")
          .let("heads", "group*kv_heads/pooled")
          .let("q_blocks", "ceildiv(queries, q_block_size)")
          .let("k_blocks", "ceildiv(keys, k_block_size)")
          .require("k", "group >= 1", "no heads, as q", "give q a head for each of k, or more")
          .require("q", "1 <= d & d <= 512", "1 to 512 features", "split the heads")
          .out(&Op::out, "out", "batch heads q_blocks k_blocks", is(f32),
               "scale * mean of a query block * mean of a key block")
          .source("means of blocks as in Jiang et al. 2024, MInference 1.0")
          .no_gradient("it is composed of means and products")
          .flops("2*batch*heads*q_blocks*k_blocks*d + batch*d*(queries*group + keys)*kv_heads")
          .examples(
              {{"grouped_causal",
                "batch=1 queries=37 group=2 kv_heads=2 keys=70 d=16 q_block_size=8 k_block_size=4 causal"},
               {"per_head_f16",
                "batch=2 queries=33 group=2 kv_heads=2 keys=20 d=8 f16 q_block_size=16 k_block_size=70 "
                "per_kv_head=false"}})
          .measured(
              {{"65536", "batch=1 queries=65536 group=1 kv_heads=1 keys=65536 d=64"},
               {"16384_grouped", "batch=1 queries=16384 group=4 kv_heads=2 keys=16384 d=128 bf16 causal"}})
          .run(run, formula);
  return table;
}

Tensor block_scores(const TensorRef& q, const TensorRef& k, const BlockScoresOptions& options) {
  const BlockScores op{options, q, k};
  return run_call(block_scores_schema(), &op).output("out");
}

}  // namespace tegula::ops
