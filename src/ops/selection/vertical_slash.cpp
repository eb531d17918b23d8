#include "tegula/ops/vertical_slash.hpp"

#include <algorithm>
#include <set>

#include "ops/lists/sorted_lists.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/block_sparse_attention.hpp"
#include "tegula/ops/merge_attention.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int word = 32;  // blocks of a word of marks

struct LinesInstance {
  int q_block = 64, k_block = 64;
  int marked = 1024;  // blocks that are marked at a time
  auto fields() const { return std::tuple(joined("b", q_block, k_block), labelled("marked", marked)); }
};

LinesInstance lines_plan(const Bound<VerticalSlashBlocks>& c) {
  return {c->q_block_size, c->k_block_size, marked_blocks(c.dim("k_blocks"))};
}

struct Program {
  const LinesInstance& c;
  Dim batch{"batch"}, heads{"heads"}, q_blocks{"q_blocks"}, k_blocks{"k_blocks"};
  Dim verticals{"verticals"}, slashes{"slashes"};
  Tensor vertical = input("vertical", {batch, heads, verticals}, i32),
         slash = input("slash", {batch, heads, slashes}, i32);
  Tensor mask = output("mask", {batch, heads, q_blocks, k_blocks}, boolean),
         columns = output("columns", {batch, heads, q_blocks, verticals}, i32);
  Expr queries = scalar("queries", i32), keys = scalar("keys", i32);

  static Expr bit(const Expr& n) { return u32(1) << u32(n); }

  // Marks the blocks from `begin` on that a diagonal crosses in the rows of positions `low` to `high`.
  void mark(const Tensor& distances, const Expr& low, const Expr& high, const Expr& begin,
            Shared& marks) const {
    clear(marks);
    parallel(slashes, [&](Index i) {
      Expr distance = distances(i), first = max(low - distance, 0) / c.k_block, last = high - distance;
      when(distance >= 0 && last >= 0, [&] {
        serial(range(max(first, begin), min(last / c.k_block + 1, begin + c.marked)), [&](Index block) {
          Expr at = block - begin;
          atomic_or(marks(at / word), bit(at % word));
        });
      });
    });
  }
  void block(const Expr& x, const Expr& h, const Expr& b) const {
    Expr before = keys - queries, low = max(x * c.q_block + before, 0),
         high = min((x + 1) * c.q_block, queries) - 1 + before;
    Tensor own = columns.slice(b, h, x), row = mask.slice(b, h, x), wanted = vertical.slice(b, h);
    parallel(verticals, [&](Index i) {
      Expr column = wanted(i);
      when(column < 0 || column >= keys, [&] { own(i) = -1; });
    });
    serial(ceildiv(k_blocks, c.marked), [&](Index n) {
      Expr begin = n * c.marked;
      Shared marks({c.marked / word}, u32);
      mark(slash.slice(b, h), low, high, begin, marks);
      parallel(min(c.marked, k_blocks - begin),
               [&](Index j) { row(begin + j) = (marks(j / word) & bit(j % word)) != 0u; });
      parallel(verticals, [&](Index i) {
        Expr column = wanted(i), at = max(column, 0) / c.k_block - begin;
        when(column >= 0 && column < keys && at >= 0 && at < c.marked,
             [&] { own(i) = select((marks(at / word) & bit(at % word)) != 0u, -1, column); });
      });
    });
  }
};

Kernel lines_program(const LinesInstance& c) {
  return kernel(instance_name("vertical_slash_blocks", c), [&] {
    const Program p{c};
    grid(p.q_blocks, p.heads, p.batch, [&](Index x, Index h, Index b) { p.block(x, h, b); });
  });
}

void formula(const Bound<VerticalSlashBlocks>& c, Exact& exact) {
  const tegula::Tensor &vertical = exact["vertical"], &slash = exact["slash"], &mask = exact["mask"],
                       &columns = exact["columns"];
  for (std::int64_t b = 0; b < c.dim("batch"); ++b)
    for (std::int64_t h = 0; h < c.dim("heads"); ++h)
      for (std::int64_t x = 0; x < c.dim("q_blocks"); ++x) {
        std::set<std::int64_t> blocks;
        const std::int64_t end = std::min((x + 1) * c->q_block_size, c->queries);
        for (std::int64_t i = x * c->q_block_size; i < end; ++i)
          for (std::int64_t s = 0; s < c.dim("slashes"); ++s) {
            const std::int64_t distance = slash.at<std::int32_t>(b, h, s),
                               key = i + c->keys - c->queries - distance;
            if (distance >= 0 && key >= 0) blocks.insert(key / c->k_block_size);
          }
        for (std::int64_t n = 0; n < c.dim("k_blocks"); ++n) mask.at<bool>(b, h, x, n) = blocks.contains(n);
        for (std::int64_t i = 0; i < c.dim("verticals"); ++i) {
          const std::int64_t column = vertical.at<std::int32_t>(b, h, i);
          const bool single = column >= 0 && column < c->keys && !blocks.contains(column / c->k_block_size);
          columns.at<std::int32_t>(b, h, x, i) = static_cast<std::int32_t>(single ? column : -1);
        }
      }
}

}  // namespace

const OperatorSchema& vertical_slash_blocks_schema() {
  using Op = VerticalSlashBlocks;
  const OptionRule tokens =
      between(0, (1 << 29) - 1, "a number of tokens below 2^29", "give that of the tensors");
  static const OperatorSchema table =
      Schema<Op>("vertical_slash_blocks",
                 "blocks of keys that diagonals of the scores cross, and the columns outside of them")
          .in(&Op::vertical, "vertical", "batch heads verticals", index,
              "keys that all queries see; other numbers, such as -1, are padding")
          .converts()
          .range("-1", "keys+2")
          .in(&Op::slash, "slash", "batch heads slashes", index,
              "distances from a query back to a key; negative numbers are padding")
          .converts()
          .range("-1", "keys+2")
          .remedy("give it the batch and heads of vertical")
          .option(&Op::queries, "queries", "queries of a sequence", tokens)
          .needed()
          .option(&Op::keys, "keys", "keys per sequence; the last query is aligned with the last key", tokens)
          .needed()
          .option(&Op::q_block_size, "q_block_size", "queries of a block", block_size)
          .option(&Op::k_block_size, "k_block_size", "keys of a block", block_size)
          .let("q_blocks", "ceildiv(queries, q_block_size)")
          .let("k_blocks", "ceildiv(keys, k_block_size)")
          .out(&Op::mask, "mask", "batch heads q_blocks k_blocks", is(boolean),
               "whether a diagonal of a block of queries crosses the block of keys")
          .out(&Op::columns, "columns", "batch heads q_blocks verticals", index,
               "columns outside of these blocks; -1 for the others")
          .source("the vertical-slash pattern of Jiang et al. 2024, MInference 1.0")
          .no_gradient("its results are key numbers")
          .flops("batch*heads*q_blocks*(verticals + 2*slashes)")
          .examples(
              {{"small",
                "batch=2 heads=3 verticals=5 slashes=4 queries=50 keys=61 q_block_size=16 k_block_size=8"},
               {"many_blocks",
                "batch=1 heads=1 verticals=40 slashes=9 queries=70 keys=1500 q_block_size=32 "
                "k_block_size=1"}})
          .measured({{"131072", "batch=1 heads=32 verticals=1000 slashes=200 queries=131072 keys=131072"}})
          .run(lines_plan, lines_program, formula);
  return table;
}

AttentionResult vertical_slash_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& vertical, const TensorRef& slash,
                                         const VerticalSlashOptions& options) {
  const int tokens = options.layout == Layout::bshd ? 1 : 2;
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    throw ArgumentError(
        "vertical_slash_attention, argument 'q': expected q, k and v with a batch, tokens, heads and "
        "features, given " +
        describe(q) + " and " + describe(k) + "; reshape them");
  VerticalSlashBlocks choice;
  choice.q_block_size = options.q_block_size, choice.k_block_size = options.k_block_size;
  choice.target = options.target;
  const VerticalSlashResult chosen =
      vertical_slash_blocks(vertical, slash, q.size(tokens), k.size(tokens), choice);
  BlockSparseOptions blocks;
  blocks.layout = options.layout, blocks.scale = options.scale, blocks.target = options.target;
  blocks.causal = true, blocks.q_block_size = options.q_block_size;
  BlockSparseOptions columns = blocks;
  blocks.k_block_size = options.k_block_size, blocks.mask = chosen.mask;
  columns.k_block_size = 1, columns.indices = chosen.columns;
  // Both write their own of what is merged.
  Shape shape = q.shape;
  shape[3] = v.size(3);
  const Shape lse_shape{q.size(0), q.size(3 - tokens), q.size(tokens)};
  const auto two = [](const Shape& of) {
    Shape both{2};
    both.insert(both.end(), of.begin(), of.end());
    return both;
  };
  const tegula::Tensor outs = tegula::Tensor::empty(two(shape), q.dtype, q.device),
                       lses = tegula::Tensor::empty(two(lse_shape), f32, q.device);
  std::int64_t number = 0;
  for (BlockSparseOptions* each : {&blocks, &columns}) {
    const tegula::Tensor out = outs.select(0, number), lse = lses.select(0, number);
    each->out = out.ref(), each->lse = lse.ref();
    block_sparse_attention(q, k, v, *each);
    ++number;
  }
  MergeAttention merge;
  merge.layout = options.layout, merge.target = options.target;
  return merge_attention(outs, lses, merge);
}

}  // namespace tegula::ops
