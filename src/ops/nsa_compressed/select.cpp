#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/nsa_compressed/select_kernel.hpp"
#include "ops/lists/ranked.hpp"

namespace tegula::ops {

namespace {

// Columns that a warp holds in registers, and entries of a block that a program writes out.
constexpr int most_columns = 2048, most_written_out = 8;
constexpr int least_columns = 16;  // of a product
// The search of a tile and its loads take as long as so many of its steps.
constexpr int steps_of_search = 4;

// Columns of a product in warp groups' rows, entries of a step, and the time of a score.
struct SelectTiles {
  int rows = 1, keys = 64;
  double cost = 1;
};

// Entries that begin in a block, if steps combine those of whole blocks: they hold whole ones, none reaches
// past the next, and what several chunks of heads find of a block is a sum.
int begun_of_step(const Bound<NsaSelect>& c, const SelectKernel& kernel) {
  const std::int64_t begun = c->block_size / c->stride;
  const bool combines = c.on_gpu() && kernel.aligned && kernel.entries > 0 &&
                        kernel.heads.keys % begun == 0 && kernel.entries <= 2 * begun &&
                        (kernel.chunks == 1 || c->weight == BlockWeight::sum);
  return combines ? static_cast<int>(begun) : 0;
}

SelectKernel plan(const Bound<NsaSelect>& c) {
  SelectKernel kernel{compressed_kernel(c, c.small_dim("d"))};
  CompressedKernel& heads = kernel.heads;
  kernel.weight = c->weight;
  kernel.chunks = std::max(c.small_dim("group") / heads.pack, 1);
  if (c.on_gpu() && heads.pack > 1 && heads.rows() == warp_group_rows && heads.features() <= 128) {
    // More columns of a product take the same rows of entries from shared memory; two blocks of one warp
    // group fill each other's waits. Where a tile has few steps, three small blocks fill them better.
    const Candidates<SelectTiles, 4> candidates{{2, 64, 1}, {1, 64, 1.2}, {2, 128, 1.3}, {1, 128, 1.3}};
    const SelectTiles best = best_of(candidates, [&](const SelectTiles& own) {
      return own.cost * static_cast<double>(c.dim("entries") + steps_of_search * own.rows * own.keys);
    });
    if (best.rows == 1) kernel.resident = 3;
    const auto queries =
        std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(c.dim("longest"), 1, 64)));
    heads.keys = best.keys;
    // Of a token that is decoded, only the columns of its own heads are multiplied.
    heads.queries =
        std::min(heads.queries * best.rows, std::max(static_cast<int>(queries), least_columns / heads.pack));
  }
  kernel.columns = static_cast<int>(
      std::clamp<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(c.dim("blocks"))), 32, most_columns));
  kernel.held = c.dim("blocks") <= kernel.columns;
  kernel.aligned = c->block_size % c->stride == 0;
  const std::int64_t around = c->length + c->block_size - 1,
                     most = kernel.aligned ? c->block_size / c->stride + (c->length - 1) / c->stride
                                           : (around + c->stride - 1) / c->stride;
  kernel.entries = most <= most_written_out ? static_cast<int>(most) : 0;
  kernel.begun = begun_of_step(c, kernel);
  return kernel;
}

void run(const Bound<NsaSelect>& c, Launch& launch) {
  const SelectKernel kernel = plan(c);
  launch(kernel, select_program,
         {{"q", rows_of_queries(c, "q", kernel.heads.pack)},
          {"k", rows_of_entries(c, "k")},
          {"lse", vector_of_queries(c, "lse", kernel.heads.pack)},
          {"out", rows_of_entries(c, "out")},
          {"scale", program_scale(static_cast<float>(c.real("scale")), 0)}});
}

// A query of one sequence: its position, and where its row and its entries stand.
struct Place {
  std::int64_t batch, row, position, first_entry, entries;
};

template <class F>
void each_query(const Bound<NsaSelect>& c, const F& visit) {
  if (!c.has("cu_seqlens")) {
    for (std::int64_t b = 0; b < c.dim("batch"); ++b)
      for (std::int64_t i = 0; i < c.dim("queries"); ++i)
        visit(Place{b, i, i + c.dim("tokens") - c.dim("queries"), 0, c.dim("entries")});
    return;
  }
  const auto fence = [&](std::int64_t i) { return static_cast<std::int64_t>(c["cu_seqlens"].get({i})); };
  for (std::int64_t s = 0; s < c.dim("sequences"); ++s)
    for (std::int64_t i = fence(s); i < fence(s + 1); ++i)
      visit(Place{0, i, i - fence(s), fence(s) / c->stride, c.dim("entries") - fence(s) / c->stride});
}

// How much each block up to the query's own matters.
std::vector<double> weights_of(const Bound<NsaSelect>& c, const Place& at, std::int64_t kv_head) {
  const TensorRef q = batched(c["q"], c->layout), k = batched(c["k"], c->layout),
                  lse = batched_vector(c["lse"]);
  std::vector<double> result(static_cast<std::size_t>(
      at.position < 0 ? 0 : std::min(at.position / c->block_size + 1, c.dim("blocks"))));
  for (std::int64_t n = 0; n < at.entries && n * c->stride + c->length <= at.position + 1; ++n) {
    double weight = 0;
    for (std::int64_t h = kv_head * c.dim("group"); h < (kv_head + 1) * c.dim("group"); ++h) {
      const double base = lse.get({at.batch, h, at.row});
      double score = 0;
      for (std::int64_t d = 0; d < c.dim("d"); ++d)
        score += q.get({at.batch, at.row, h, d}) * k.get({at.batch, at.first_entry + n, kv_head, d});
      if (base > -std::numeric_limits<double>::infinity()) weight += std::exp(score * c.real("scale") - base);
    }
    const std::int64_t last = (n * c->stride + c->length - 1) / c->block_size;
    for (std::int64_t j = n * c->stride / c->block_size; j <= last; ++j) {
      double& own = result.at(static_cast<std::size_t>(j));
      own = c->weight == BlockWeight::sum ? own + weight : std::fmax(own, weight);
    }
  }
  return result;
}

void formula(const Bound<NsaSelect>& c, Exact& exact) {
  const tegula::Tensor result = tegula::Tensor::full(c["out"].shape, i32, -1);
  const TensorRef out = batched(result, c->layout);
  each_query(c, [&](const Place& at) {
    for (std::int64_t h = 0; h < c.dim("kv_heads"); ++h) {
      const std::vector<double> weights = weights_of(c, at, h);
      const auto visible = static_cast<std::int64_t>(weights.size());
      std::vector<Ranked> order;
      for (std::int64_t j = 0; j < visible; ++j) {
        const bool forced = j < c->first_blocks || j >= visible - c->local_blocks;
        order.emplace_back(forced, weights[static_cast<std::size_t>(j)], j);
      }
      const std::vector<std::int64_t> chosen = chosen_of(order, c->count);
      for (std::size_t i = 0; i < chosen.size(); ++i)
        out.set({at.batch, at.row, h, static_cast<std::int64_t>(i)}, static_cast<double>(chosen[i]));
    }
  });
  exact.set("out", result);
}

const OptionRule some_blocks =
    between(0, 1 << 20, "a number of blocks from 0 to 2^20", "give another number");

std::vector<Example> select_examples() {
  return {{"small",
           "batch=1 queries=19 entries=9 kv_heads=1 group=2 d=8 length=4 stride=2 block_size=4 count=3 "
           "key_tokens=21"},
          {"grouped_bhsd",
           "batch=2 queries=150 entries=36 kv_heads=2 group=6 d=16 length=8 stride=4 block_size=8 "
           "count=5 local_blocks=1 layout=bhsd"},
          {"packed_f16",
           "sequences=4 queries=170 entries=42 kv_heads=2 group=4 d=16 f16 length=6 stride=4 "
           "block_size=10 count=4 first_blocks=0 cu_seqlens"},
          {"packed_without_entries",
           "sequences=2 queries=3 entries=0 kv_heads=2 group=2 d=8 length=6 stride=4 block_size=2 count=2 "
           "cu_seqlens"},
          {"group_of_16_bf16",
           "batch=1 queries=90 entries=80 kv_heads=1 group=16 d=64 bf16 length=2 stride=1 block_size=3 "
           "count=9"},
          {"blocks_of_steps_bf16",
           "batch=1 queries=150 entries=74 kv_heads=2 group=16 d=64 bf16 length=4 stride=2 block_size=8 "
           "count=4"},
          {"one_token_bf16",
           "batch=2 queries=1 entries=74 kv_heads=2 group=16 d=64 bf16 length=4 stride=2 block_size=8 "
           "count=4 key_tokens=150"},
          {"more_blocks_than_a_warp_holds",
           "batch=1 queries=3 entries=1040 kv_heads=1 group=1 d=8 length=2 stride=2 block_size=1 "
           "count=5 key_tokens=2080"},
          {"many_entries_of_a_block",
           "batch=1 queries=100 entries=49 kv_heads=2 group=2 d=16 f16 length=4 stride=2 block_size=32 "
           "count=2"},
          {"largest_bf16",
           "batch=1 queries=90 entries=21 kv_heads=2 group=4 d=32 bf16 length=8 stride=4 block_size=8 "
           "count=4 local_blocks=1 weight=largest"},
          {"forced_more_than_count",
           "batch=1 queries=70 entries=9 kv_heads=1 group=1 d=8 length=4 stride=4 block_size=4 count=2 "
           "first_blocks=2 local_blocks=3"}};
}

}  // namespace

const OperatorSchema& nsa_select_schema() {
  using Op = NsaSelect;
  static const OperatorSchema table =
      Schema<Op>("nsa_select", "the key blocks that matter most by the weights of compressed entries")
          .with(add_compressed_keys<Op>)
          .in(&Op::lse, "lse", vector_dims, is(f32),
              "the lse that nsa_compressed_attention returns for q and k")
          .with(add_windows<Op>("queries"))
          .option(&Op::count, "count", "entries of a row, at most 4096")
          .needed()
          .option(&Op::block_size, "block_size", "tokens of a selected block", block_size)
          .option(&Op::first_blocks, "first_blocks",
                  "number of leading blocks that are always selected first", some_blocks)
          .option(&Op::local_blocks, "local_blocks",
                  "number of blocks up to the query's own that are always selected first", some_blocks)
          .option(&Op::weight, "weight", "how the weights of a block's entries are combined")
          .with(add_positions<Op>)
          .let("blocks", "ceildiv(cu_seqlens ? longest : tokens, block_size)")
          .require("count", "0 <= count & count <= 4096", "a number of blocks from 0 to 4096",
                   "select larger blocks")
          .out(&Op::out, "out", compressed_dims("queries", "kv_heads", "count"), is(i32),
               "block numbers in ascending order, -1 where fewer exist")
          .source("Yuan et al. 2025, Native Sparse Attention: selection by the compressed branch")
          .no_gradient("it chooses")
          .flops(
              "2*batch*kv_heads*group*d*(key_tokens > 0 ? queries*entries : "
              "queries*queries/(2*stride))")
          .examples(select_examples())
          .measured({{"8192_bf16",
                      "batch=1 queries=8192 entries=511 kv_heads=4 group=16 d=128 bf16 length=32 stride=16 "
                      "count=16"},
                     {"65536_of_16_heads_bf16",
                      "batch=1 queries=65536 entries=4095 kv_heads=1 group=16 d=128 bf16 length=32 stride=16 "
                      "count=16"},
                     {"decode_65536_bf16",
                      "batch=32 queries=1 entries=4095 kv_heads=4 group=16 d=128 bf16 length=32 stride=16 "
                      "key_tokens=65536 count=16"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
