#include "ops/pieces/attention_table.hpp"
#include "ops/pieces/long_sum.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"
#include "tegula/ops/selection.hpp"

namespace tegula::ops {

template <>
inline constexpr std::array<std::string_view, 2> choice_names<KeyProxy>{"mean", "max"};

namespace {

using namespace lang;
using lang::Tensor;

// A CPU adds the rows of a step one by one, threads of a GPU only a few of them: of so many, equal ones are
// exact to 24 bits.
constexpr int summed_on_cpu = 16, usual_summed = 64;

struct ScoresInstance {
  DType type = f32;
  int dim = 64, q_block = 64, k_block = 64, group = 1;  // query heads whose mean makes a row: a group, or 1
  bool causal = false;
  int rows = 64, columns = 64;  // of a tile of scores
  int summed = usual_summed;    // rows of a block that are loaded and summed at a time
  bool largest = false;         // of the keys of a block, not their mean
  DType multiplied = f32;       // type of the tiles; other than f32 only for single rows

  // Every row of q has scores of its own: nothing is pooled.
  bool of_single_rows() const { return largest && q_block == 1 && group == 1; }
  auto fields() const {
    return std::tuple(type, labelled("d", dim), joined("b", q_block, k_block), labelled("g", group),
                      joined("t", rows, columns), labelled("causal", causal),
                      labelled("s", summed == usual_summed ? std::nullopt : std::optional(summed)),
                      labelled("largest", largest),
                      labelled("by", multiplied == f32 ? std::nullopt : std::optional(multiplied)));
  }
};

// The shared memory of a GPU holds the means of all blocks of a tile.
ScoresInstance scores_plan(const Bound<BlockScores>& c) {
  const auto tile = [&](const char* blocks) {
    return c.dim(blocks) <= 16 ? 16 : c.dim(blocks) <= 64 ? 64 : 128;
  };
  ScoresInstance kernel{c.type("q"),
                        c.small_dim("d"),
                        c->q_block_size,
                        c->k_block_size,
                        c.small_dim("pooled"),
                        c->causal,
                        tile("q_blocks"),
                        tile("k_blocks"),
                        c.on_gpu() ? usual_summed : summed_on_cpu,
                        c->proxy == KeyProxy::max};
  if (kernel.largest) {
    kernel.columns = std::clamp((kernel.k_block + 15) / 16 * 16, 16, 64);
    if (!c.on_gpu() && kernel.rows == 64 && c.dim("q_blocks") <= 32)
      kernel.rows = 32;  // the others are empty
  }
  if (kernel.of_single_rows()) kernel.multiplied = multiplied_type(kernel.type, c.on_gpu());
  while (c.on_gpu() && (kernel.rows + kernel.columns) * kernel.dim * std::int64_t{kernel.multiplied.bytes()} >
                           bytes_of_tiles)
    (kernel.rows > kernel.columns ? kernel.rows : kernel.columns) /= 2;
  return kernel;
}

// pooled[block] = mean of the rows of `from` [tokens, group, d] in that block, over all members of the group.
void pool(const Tensor& from, const Tensor& pooled, const Expr& block, int size, int rows_at_once, int group,
          int dim) {
  const int rows = std::min(size, rows_at_once);
  Expr begin = block * size, end = min(begin + size, from.extent(0));
  Tensor members = from.slice(range(begin, end));
  LongSum total(dim);
  serial(group, [&](Index g) {
    serial(ceildiv(end - begin, rows), [&](Index step) {
      Fragment tile({rows, dim}, f32);
      copy(members.slice(all, g).at(step * rows), tile);
      total.add(reduce_sum(tile, 0));
    });
  });
  Fragment& sum = total.total();
  Expr weight = 1.f / f32((end - begin) * group);
  parallel(sum, [&](Index d) { sum(d) *= weight; });
  copy(sum, pooled.slice(block));
}

// One past the last key that the last query of q block `block` reaches.
Expr seen_keys(const Expr& block, int q_block, const Expr& queries, const Expr& keys) {
  return clamp(min((block + 1) * q_block, queries) + keys - queries, 0, keys);
}

// The largest product per block of keys, for rows [q_blocks, d] and keys [keys, d] of a head.
void largest_products(const ScoresInstance& c, const Tensor& of_rows, const Tensor& keys, const Expr& row,
                      const Expr& block, const Expr& queries, const Expr& scale, const Tensor& out) {
  const bool skips = c.causal && c.of_single_rows();  // keys that the last row of the tile does not see
  Expr begin = block * c.k_block, last = min(begin + c.k_block, keys.extent(0));
  Expr end = skips ? max(begin, min(last, seen_keys(row + (c.rows - 1), 1, queries, keys.extent(0)))) : last;
  Shared left({c.rows, c.dim}, c.multiplied);
  copy(of_rows.at(row), left);
  Fragment best({c.rows}, f32, -inf);
  pipelined(ceildiv(end - begin, c.columns), {.stages = 2}, [&](Index step) {
    Expr first = begin + step * c.columns;
    Shared right({c.columns, c.dim}, c.multiplied);
    copy(keys.at(first), right);
    Fragment scores({c.rows, c.columns}, f32, 0);
    gemm(left, right.T(), scores);
    parallel(scores, [&](Index i, Index j) {
      Expr seen = c.causal ? min(seen_keys(row + i, c.q_block, queries, keys.extent(0)), end) : end;
      scores(i, j) = select(first + j < seen, scores(i, j) * scale, -inf);
    });
    reduce_max(scores, best);
  });
  copy(best, out.slice(all, block).at(row));
}

Kernel scores_program(const ScoresInstance& c) {
  return kernel(instance_name("block_scores", c), [&] {
    Dim batch("batch"), queries("queries"), keys("keys"), heads("heads"), kv_heads("kv_heads");
    Tensor q = input("q", {batch, queries, heads, c.group, c.dim}, c.type);
    Tensor k = input("k", {batch, keys, kv_heads, c.dim}, c.type);
    Expr q_blocks = ceildiv(queries, c.q_block), k_blocks = ceildiv(keys, c.k_block);
    Tensor out = output("out", {batch, heads, q_blocks, k_blocks}, f32);
    Expr scale = scalar("scale", f32);
    Expr all_heads = heads * batch;
    const auto largest = [&](const auto& rows_of) {
      grid(k_blocks, ceildiv(q_blocks, c.rows), all_heads, [&](Index x, Index y, Index z) {
        Expr b = z / heads, h = z % heads;
        largest_products(c, rows_of(b, h), k.slice(b, all, h / (heads / kv_heads)), y * c.rows, x, queries,
                         scale, out.slice(b, h));
      });
    };
    if (c.of_single_rows())
      return largest([&](const Expr& b, const Expr& h) { return q.slice(b, all, h, 0); });
    Tensor q_means = workspace("q_means", {batch, heads, q_blocks, c.dim}, f32);
    grid(q_blocks, heads, batch, [&](Index x, Index h, Index b) {
      pool(q.slice(b, all, h), q_means.slice(b, h), x, c.q_block, c.summed, c.group, c.dim);
    });
    if (c.largest) return largest([&](const Expr& b, const Expr& h) { return q_means.slice(b, h); });
    Tensor k_means = workspace("k_means", {batch, kv_heads, k_blocks, c.dim}, f32);
    grid(k_blocks, kv_heads, batch, [&](Index x, Index h, Index b) {
      pool(k.slice(b, all, range(h, h + 1)), k_means.slice(b, h), x, c.k_block, c.summed, 1, c.dim);
    });
    grid(ceildiv(k_blocks, c.columns), ceildiv(q_blocks, c.rows), all_heads, [&](Index x, Index y, Index z) {
      Expr b = z / heads, h = z % heads, row = y * c.rows, column = x * c.columns;
      Shared left({c.rows, c.dim}, f32), right({c.columns, c.dim}, f32);
      copy(q_means.slice(b, h).at(row), left);
      copy(k_means.slice(b, h / (heads / kv_heads)).at(column), right);
      Fragment scores({c.rows, c.columns}, f32, 0);
      gemm(left, right.T(), scores);
      parallel(scores, [&](Index i, Index j) {
        Expr score = scores(i, j) * scale;
        Expr seen = ceildiv(seen_keys(row + i, c.q_block, queries, keys), c.k_block);
        scores(i, j) = c.causal ? select(column + j < seen, score, -inf) : score;
      });
      copy(scores, out.slice(b, h).at(row, column));
    });
  });
}

void run(const Bound<BlockScores>& c, Launch& launch) {
  const TensorRef q = split_heads(as_bshd(c["q"], c->layout), 2, c.dim("pooled"));
  launch(scores_plan(c), scores_program,
         {{"q", q}, {"k", as_bshd(c["k"], c->layout)}, {"scale", c.real("scale")}});
}

void formula(const Bound<BlockScores>& c, Exact& exact) {
  const auto q = exact.array("q"), k = exact.array("k");
  const std::int64_t queries = c.dim("queries"), keys = c.dim("keys"), features = c.dim("d"),
                     pooled = c.dim("pooled"),
                     share = c.dim("heads") / std::max<std::int64_t>(c.dim("kv_heads"), 1);
  constexpr double none = -std::numeric_limits<double>::infinity();
  exact.array("out").each([&](auto b, auto h, auto i, auto j) {
    const std::int64_t q_begin = i * c->q_block_size, q_end = std::min(q_begin + c->q_block_size, queries),
                       k_begin = j * c->k_block_size, k_end = std::min(k_begin + c->k_block_size, keys),
                       seen = c->causal ? std::min(k_end, q_end + keys - queries) : k_end;
    if (seen <= k_begin) return none;
    std::vector<double> sums(features);
    for (std::int64_t t = q_begin; t < q_end; ++t)
      for (std::int64_t g = 0; g < pooled; ++g)
        for (std::int64_t d = 0; d < features; ++d) sums[d] += q(b, t, h / share, h % share + g, d);
    const auto score = [&](std::int64_t begin, std::int64_t end) {  // of the keys' mean
      double product = 0;
      for (std::int64_t t = begin; t < end; ++t)
        for (std::int64_t d = 0; d < features; ++d) product += sums[d] * k(b, t, h / share, d);
      return c.real("scale") * product / static_cast<double>((q_end - q_begin) * pooled * (end - begin));
    };
    if (c->proxy == KeyProxy::mean) return score(k_begin, k_end);
    double best = none;
    for (std::int64_t t = k_begin; t < seen; ++t) best = std::max(best, score(t, t + 1));
    return best;
  });
}

std::vector<CallMap> score_maps() {
  const std::string base = "batch=1 queries=16384 keys=16384 kv_heads=2 group=4 d=128 bf16 causal";
  return {{"blocks",
           base,
           {"q_block_size=1", "q_block_size=16", "q_block_size=64", "q_block_size=100", "q_block_size=128",
            "q_block_size=256"},
           {"k_block_size=16", "k_block_size=32", "k_block_size=64", "k_block_size=100", "k_block_size=128",
            "proxy=max k_block_size=64", "proxy=max k_block_size=128", "per_kv_head=false"}},
          {"features",
           base,
           {"d=32", "d=64", "d=80", "d=96", "d=128", "d=192", "d=256"},
           {"", "causal=false", "layout=bhsd", "queries=16383 keys=16385", "queries=1", "f16", "f32",
            "strides=odd"}}};
}

std::vector<Example> score_examples() {
  return {{"grouped_causal",
           "batch=1 queries=37 group=2 kv_heads=2 keys=70 d=16 q_block_size=8 k_block_size=4 causal"},
          {"per_head_f16",
           "batch=2 queries=33 group=2 kv_heads=2 keys=20 d=8 f16 q_block_size=16 k_block_size=70 "
           "per_kv_head=false"},
          {"largest_causal",
           "batch=1 queries=37 group=2 kv_heads=2 keys=70 d=16 q_block_size=4 k_block_size=24 causal "
           "proxy=max"},
          {"largest_of_rows_bf16",
           "batch=1 queries=90 group=2 kv_heads=1 keys=100 d=32 bf16 q_block_size=1 k_block_size=24 "
           "causal proxy=max per_kv_head=false"},
          {"largest_of_128_of_one_token",
           "batch=2 queries=1 group=4 kv_heads=2 keys=2200 d=128 bf16 q_block_size=1 k_block_size=128 "
           "proxy=max"}};
}

std::vector<Example> score_measured() {
  return {{"8x131072_largest_of_128",
           "batch=8 queries=1 group=8 kv_heads=1 keys=131072 d=128 bf16 q_block_size=1 k_block_size=128 "
           "proxy=max"},
          {"16384_largest_of_128_for_rows",
           "batch=1 queries=16384 group=4 kv_heads=1 keys=16384 d=128 bf16 q_block_size=1 "
           "k_block_size=128 causal proxy=max per_kv_head=false"},
          {"65536", "batch=1 queries=65536 group=1 kv_heads=1 keys=65536 d=64"},
          {"16384_grouped", "batch=1 queries=16384 group=4 kv_heads=2 keys=16384 d=128 bf16 causal"}};
}

}  // namespace

const OperatorSchema& block_scores_schema() {
  using Op = BlockScores;
  static const OperatorSchema table =
      Schema<Op>("block_scores", "products of the means of query blocks and key blocks, or of single keys")
          .with([](Schema<Op>& table) {
            add_queries_and_keys(table, batch_dims("queries", query_heads, "d"),
                                 batch_dims("keys", "kv_heads", "d"));
          })
          .option(&Op::q_block_size, "q_block_size", "queries of a block", block_size)
          .option(&Op::k_block_size, "k_block_size", "keys of a block", block_size)
          .option(&Op::layout, "layout", "order of batch, sequence, heads, features")
          .option(&Op::causal, "causal", "blocks that no query of the row sees score -inf")
          .option(&Op::proxy, "proxy",
                  "representative of a block of keys: their mean, or the key with the largest product")
          .option(&Op::per_kv_head, "per_kv_head", "one row for the heads of a group")
          .with(add_scale<Op>)
          .let("pooled", "per_kv_head ? max(group, 1) : 1")
          .let("heads", "kv_heads*group/pooled")
          .let("q_blocks", "ceildiv(queries, q_block_size)")
          .let("k_blocks", "ceildiv(keys, k_block_size)")
          .out(&Op::out, "out", "batch heads q_blocks k_blocks", is(f32),
               "scale * mean of a query block * mean of a key block, or the largest product of one of its "
               "keys")
          .source("means of blocks as in Jiang et al. 2024, MInference 1.0")
          .composed_gradient("means and products")
          .flops(
              "2*batch*heads*q_blocks*(proxy=max ? keys : k_blocks)*d + batch*d*(queries*group + "
              "keys)*kv_heads")
          .examples(score_examples())
          .measured(score_measured())
          .maps(score_maps())
          .built_in({"batch=1 {queries=4096 keys=4096|queries=8192 keys=8192} kv_heads=1 group=1 "
                     "{d=64|d=128} {|causal}",
                     "batch=1 {queries=64|queries=8192} keys=8192 kv_heads=1 group=1 d=29"})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
