// The choice of keys in two levels: blocks by a key that stands for each, then keys of these blocks.
#include <algorithm>
#include <limits>

#include "ops/latent/indexer_blocks_kernel.hpp"
#include "ops/latent/indexer_table.hpp"
#include "ops/latent/topk_table.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t most_block_logits = std::int64_t{1} << 26;  // that are in memory, f32
constexpr int keys_of_block_tile = 64;                             // as many as tensor cores multiply

// Queries [begin, end) of a call.
class ChoiceInBlocks {
 public:
  ChoiceInBlocks(const Bound<IndexerBlocks>& c, std::int64_t begin, std::int64_t end, Launch& launch)
      : c_(c), begin_(begin), end_(end), launch_(launch) {}

  void run() const {
    const Tensor chosen = blocks();
    const std::int64_t columns = chosen.size(2) * c_->block_size;
    const Tensor logits = launch_.scratch({c_.dim("batch"), end_ - begin_, columns}, f32);
    BlockLogitsKernel kernel{indexer_instance(c_.call(), c_->causal)};
    kernel.indexer.queries = kernel.indexer.together = 1, kernel.indexer.keys = keys_of_block_tile;
    launch_(kernel, block_logits_kernel,
            {{"q", given("q")},
             {"weights", given("weights")},
             {"chosen", chosen},
             {"logits", logits},
             {"begins", given("begins")},
             {"ends", given("ends")},
             {"parts", indexer_splits(c_.call(), kernel.indexer, end_ - begin_, columns)},
             {"offset", offset()}});
    // The columns of a block that was chosen are a page.
    TopkKernel choice =
        topk_instance(c_.dim("batch") * (end_ - begin_), columns, c_->count, false, false, true);
    choice.own_pages = true;
    launch_(
        choice, topk_kernel,
        {{"scores", logits}, {"out", given("out")}, {"page_table", chosen}, {"page_size", c_->block_size}});
  }

 private:
  std::int64_t offset() const { return c_.dim("keys") - c_.dim("queries") + begin_; }
  // What belongs to these queries, if the call has it.
  TensorRef given(const char* name) const {
    return c_.has(name) ? c_.formed(name).slice(1, begin_, end_) : TensorRef();
  }
  // Those that queries choose, [batch, queries, blocks], ascending, then −1.
  Tensor blocks() const {
    const std::int64_t batch = c_.dim("batch"), queries = end_ - begin_, blocks = c_.dim("blocks");
    const Tensor first = launch_.scratch({batch, queries}, i32),
                 last = launch_.scratch({batch, queries}, i32);
    launch_(SeenBlocksKernel{c_.has("begins"), c_.has("ends"), c_->causal}, seen_blocks_kernel,
            {{"block_begins", first},
             {"block_ends", last},
             {"begins", given("begins")},
             {"ends", given("ends")},
             {"offset", offset()}});
    const Tensor logits = launch_.scratch({batch, queries, blocks}, f32);
    IndexerKernel kernel = indexer_instance(c_.call(), false);
    kernel.begins = kernel.ends = true, kernel.scales = c_.has("block_scales");
    launch_(kernel, indexer_kernel,
            {{"q", given("q")},
             {"k", c_.formed("block_k")},
             {"weights", given("weights")},
             {"logits", logits},
             {"k_scales", kernel.scales ? c_.formed("block_scales") : TensorRef()},
             {"begins", first},
             {"ends", last},
             {"parts", indexer_splits(c_.call(), kernel, queries, blocks)}});
    const Tensor chosen = launch_.scratch({batch, queries, std::min(c_->block_count, blocks)}, i32);
    launch_(topk_instance(batch * queries, blocks, chosen.size(2), false, false, false), topk_kernel,
            {{"scores", logits}, {"out", chosen}});
    return chosen;
  }

  const Bound<IndexerBlocks>& c_;
  std::int64_t begin_, end_;
  Launch& launch_;
};

void run(const Bound<IndexerBlocks>& c, Launch& launch) {
  const std::int64_t queries = c.dim("queries"), blocks = c.dim("blocks"),
                     of_query = std::max(blocks, std::min(c->block_count, blocks) * c->block_size),
                     all = std::max<std::int64_t>(c.dim("batch") * of_query, 1),
                     at_once = std::clamp<std::int64_t>(most_block_logits / all, 1,
                                                        std::max<std::int64_t>(queries, 1));
  for (std::int64_t begin = 0; begin < queries; begin += at_once)
    ChoiceInBlocks(c, begin, std::min(begin + at_once, queries), launch).run();
}

void formula(const Bound<IndexerBlocks>& c, Exact& exact) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  IndexerRows rows = indexer_rows(c.call(), c->causal, exact), means = rows;
  means.k = exact.array("block_k"), means.scales = exact.data_if("block_scales");
  const std::int64_t queries = c.dim("queries"), keys = c.dim("keys"), size = c->block_size;
  auto* out = exact["out"].data_as<std::int32_t>();
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(std::min(c->block_count, c.dim("blocks"))));
  for (std::int64_t i = 0; i < c.dim("batch") * queries; ++i, out += c->count) {
    rows.b = means.b = i / queries;
    const auto [begin, end] = rows.seen(i);
    std::vector<double> of_blocks(static_cast<std::size_t>(c.dim("blocks")), none),
        logits(static_cast<std::size_t>(keys), none);
    for (std::int64_t n = begin; n < end; ++n)
      of_blocks[n / size] =
          n == begin || n % size == 0 ? means.logit(exact, i % queries, n / size) : of_blocks[n / size];
    write_largest(of_blocks.data(), 0, c.dim("blocks"), chosen, {});
    for (std::int64_t n = begin; n < end; ++n)
      if (std::find(chosen.begin(), chosen.end(), n / size) != chosen.end())
        logits[n] = rows.logit(exact, i % queries, n);
    write_largest(logits.data(), 0, keys, std::span(out, static_cast<std::size_t>(c->count)), {});
  }
}

}  // namespace

const OperatorSchema& indexer_topk_of_blocks_schema() {
  using Op = IndexerBlocks;
  static const OperatorSchema table =
      Schema<Op>(
          "indexer_topk_of_blocks",
          "the keys with the largest logits of the indexer in blocks that it has chosen first, ascending")
          .with([](Schema<Op>& lines) {
            add_indexer(lines, one_of({f32, f16, bf16, e4m3}));
          })
          .in(&Op::block_k, "block_k", "[batch] blocks d", same_as("q"),
              "a key for every block of keys, such as their mean")
          .remedy("give it the batch and the features of q")
          .in(&Op::block_scales, "block_scales", "[batch] blocks", is(f32), "factors of the blocks' logits")
          .remedy("give every block one")
          .option(&Op::count, "count", "keys of a query", number_chosen)
          .needed()
          .option(&Op::block_count, "block_count", "blocks that a query chooses", number_chosen)
          .option(&Op::block_size, "block_size", "keys of a block", block_size)
          .out(&Op::out, "out", "[batch] queries count", is(i32), "key numbers; -1 where fewer exist")
          .require("block_k", "blocks == ceildiv(keys,block_size)",
                   "a key for every {block_size} of {keys} keys", "check block_size")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: DeepSeek Sparse Attention, in two levels")
          .no_gradient("it chooses")
          .flops("2*batch*queries*(blocks+min(block_count,blocks)*block_size)*heads*d")
          .examples({{"small",
                      "queries=5 keys=19 heads=3 d=8 blocks=5 block_size=4 block_count=2 count=6 "
                      "k_scales block_scales causal"},
                     {"ranges_e4m3",
                      "batch=2 queries=3 keys=300 heads=8 d=32 blocks=10 block_size=32 block_count=4 e4m3 "
                      "weights:f32 k_scales begins ends count=50"}})
          .measured({{"32768_e4m3",
                      "queries=32768 keys=32768 heads=32 d=128 blocks=512 block_size=64 block_count=128 e4m3 "
                      "weights:f32 k_scales causal count=2048"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
