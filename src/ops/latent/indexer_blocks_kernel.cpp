#include "ops/latent/indexer_blocks_kernel.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Kernel seen_blocks_kernel(const SeenBlocksKernel& c) {
  return kernel(instance_name("indexer_blocks", c), [&] {
    constexpr int tile = 128;
    Dim batch("batch"), queries("queries");
    Expr keys = scalar("keys", i32), size = scalar("block_size", i32);
    Tensor first = output("block_begins", {batch, queries}, i32),
           last = output("block_ends", {batch, queries}, i32);
    const SeenKeys seen(batch, queries, keys, c.begins, c.ends, c.causal);
    grid(ceildiv(queries, tile), batch, [&](Index x, Index b) {
      parallel(min(queries - x * tile, tile), [&](Index i) {
        Expr query = x * tile + i, begin = seen.begin(b, query), end = seen.end(b, query);
        first(b, query) = begin / size;
        last(b, query) = select(begin < end, ceildiv(end, size), 0);
      });
    });
  });
}

namespace {

struct BlockLogits {
  const BlockLogitsKernel& c;
  const IndexerKernel& of = c.indexer;
  Dim batch{"batch"}, queries{"queries"}, keys{"keys"}, entries{"entries"}, columns{"columns"};
  Tensor q = input("q", {batch, queries, of.heads, of.dim}, of.type);
  Tensor k = input("k", {batch, keys, of.dim}, of.type);
  Tensor weights = input("weights", {batch, queries, of.heads}, of.weights);
  Tensor chosen = input("chosen", {batch, queries, entries}, i32);
  Tensor logits = output("logits", {batch, queries, columns}, f32);
  Expr size = scalar("block_size", i32), splits = scalar("parts", i32);
  Tensor scales = of.scales ? input("k_scales", {batch, keys}, f32) : k;
  SeenKeys seen{batch, queries, keys, of.begins, of.ends, of.causal};

  // Keys are the rows of the product, so that a thread adds up the heads that it has itself.
  void tile(const Expr& b, const Expr& query, const Expr& step, const Shared& own,
            const Shared& weight) const {
    Expr pieces = ceildiv(size, of.keys), entry = step / pieces, first = step % pieces * of.keys;
    Expr number = chosen(b, query, entry), is_block = number >= 0 && number < ceildiv(keys, size);
    // No row of a block that does not exist is read.
    Expr key = select(is_block, number * size + first, keys);
    Shared rows({of.keys, of.tile_features}, of.compute);
    copy(k.slice(b).at(key, 0), rows);
    Fragment s({of.keys, of.tile_heads}, f32, 0);
    gemm(rows, own.T(), s);
    parallel(s, [&](Index n, Index h) { s(n, h) = max(s(n, h), 0) * weight(h); });
    Fragment sum = reduce_sum(s, 1);
    if (of.scales) {
      Fragment scale = load(scales.slice(b).at(key), {of.keys});
      parallel(sum, [&](Index n) { sum(n) *= scale(n); });
    }
    Expr begin = seen.begin(b, query), end = seen.end(b, query);
    parallel(sum, [&](Index n) {
      Expr at = key + n;
      when(first + n < size, [&] {
        logits(b, query, entry * size + first + n) = select(at >= begin && at < end, sum(n), -inf);
      });
    });
  }
  void write() const {
    grid(splits, queries, batch, [&](Index split, Index query, Index b) {
      Shared own({of.tile_heads, of.tile_features}, of.compute), weight({of.tile_heads}, f32);
      copy(q.slice(b, query).at(0, 0), own);
      copy(weights.slice(b, query).at(0), weight);
      Expr steps = entries * ceildiv(size, of.keys), each = ceildiv(steps, splits);
      pipelined(range(min(split * each, steps), min((split + 1) * each, steps)), {.stages = 3},
                [&](Index step) { tile(b, query, step, own, weight); });
    });
  }
};

}  // namespace

Kernel block_logits_kernel(const BlockLogitsKernel& c) {
  return kernel(instance_name("indexer_block_logits", c), [&] { BlockLogits{c}.write(); });
}

}  // namespace tegula::ops
