#include "tegula/ops/attention_with_kv_cache.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "ops/attention/notes.hpp"
#include "ops/decode/cache_formula.hpp"
#include "ops/decode/kernel.hpp"
#include "ops/decode/maps.hpp"
#include "ops/decode/table.hpp"
#include "ops/lists/sorted_lists.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

struct Tiles {
  int queries = 1, pack = 1, keys = 64;
};

// Rows that tensor cores multiply are filled with the heads of a group and the queries, so that their keys
// are read once.
Tiles tiles_on_gpu(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  const std::int64_t group = c.dim("group"), queries = c.dim("queries");
  const int dim = std::max(kernel.padded.of(kernel.dim), kernel.padded.of_v(kernel.dim_v));
  const int pack = static_cast<int>(
      std::min<std::uint64_t>(std::bit_ceil(static_cast<std::uint64_t>(group)), warp_group_rows));
  const bool many = queries * pack > warp_group_rows && dim <= most_dim_of_128_rows;
  const int rows = kernel.compute.bits() == 16 ? (many ? 2 : 1) * warp_group_rows : 16;
  if (kernel.compute.bits() != 16)
    return {std::max(rows / pack, 1), std::min(pack, rows), dim > 128 ? 16 : 32};
  return {rows / pack, pack, dim <= 128 ? 128 : 64};
}

// Splits of the keys are blocks as sequences are: a tile need not be small to give all processors one.
Tiles tiles_on_cpu(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  const std::int64_t splits =
      std::clamp<std::int64_t>(c.dim("room") / cpu_table.keys_of_split, 1, planned_processors);
  const AttentionProblem problem{.sequences = c.dim("batch") * splits,
                                 .heads = c.dim("kv_heads") * c.dim("group"),
                                 .group = c.dim("group"),
                                 .queries = c.dim("queries"),
                                 .keys = c.dim("room") / splits,
                                 .seen = c.dim("room") / splits,
                                 .dim = kernel.dim,
                                 .dim_v = kernel.dim_v};
  const AttentionPlan plan = plan_attention(problem, {0, 64});
  return {plan.queries, plan.pack, plan.keys};
}

CacheScale scale_of(const Bound<AttentionWithKvCache>& c, const char* name) {
  if (!c.has(name)) return CacheScale::none;
  const TensorRef& scale = c[name];
  return scale.size(0) == 1 && scale.size(1) == 1 ? CacheScale::head : CacheScale::token;
}

// Tiles of which blocks of keys consist, and that fit the pages if such a tile is found.
void choose_keys(const Bound<AttentionWithKvCache>& c, int most, CacheKernel& kernel) {
  const bool chosen = c.has("indices") || c.has("mask");
  const std::int64_t page = c.dim("page_size");
  if (!chosen) {
    kernel.keys = most;
    if (kernel.form.paged) kernel.form.page = page_of_form(page, kernel.keys);
    return;
  }
  constexpr int step = 16;
  kernel.block = c->k_block_size, kernel.mask = c.has("mask"), kernel.counts = c.has("counts");
  kernel.listed = marked_blocks((c.dim("room") + kernel.block - 1) / kernel.block);
  kernel.keys = std::min(most, (kernel.block + step - 1) / step * step);
  for (int keys = kernel.keys; keys >= step; keys -= step) {
    if (kernel.block % keys != 0) continue;
    if (kernel.block % kernel.keys != 0) kernel.keys = keys;
    if (!kernel.form.paged || page_of_form(page, keys) == 0) continue;
    kernel.keys = keys, kernel.form.page = page_of_form(page, keys);
    return;
  }
}

// Features of tiles that the tensors do not have are multiplied, too, where only that makes the features of a
// result rows of products.
void choose_few_rows(const Bound<AttentionWithKvCache>& c, CacheKernel& kernel) {
  // Of 8 bits the rest of a tile of 64 rows is not free: its warp group waits for those that widen.
  const int most_few_rows = kernel.cache.bits() == 8 ? 32 : 16;
  const bool as_they_are = kernel.features_v() % warp_group_rows == 0,
             fits = as_they_are || kernel.padded.of_v(kernel.dim_v) % warp_group_rows == 0;
  if (fits && kernel.take_few_rows(c.dim("queries"), most_few_rows)) kernel.padded.whole |= !as_they_are;
}

// Rows of a cache that come at a time: those of a page that a step has.
std::int64_t rows_of_box(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  return kernel.form.paged ? std::gcd(c.dim("page_size"), std::int64_t{kernel.keys}) : kernel.keys;
}

// Boxes of a few rows take 60 ns each; threads bring the pieces of such rows faster, beside one warp group,
// if each has the same columns of all its rows. From 256 features on a box is as fast.
bool come_by_threads(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  constexpr std::int64_t few_rows = 32, most_features = 256;
  const auto divides_threads = [](int features) {
    return features <= most_features && std::has_single_bit(static_cast<unsigned>(features));
  };
  return has_copy_engine(c.call()) && kernel.compute.bits() == 16 && kernel.cache.bits() == 16 &&
         kernel.block == 0 && kernel.rows() <= warp_group_rows && rows_of_box(c, kernel) < few_rows &&
         divides_threads(kernel.padded.of(kernel.dim)) && divides_threads(kernel.padded.of_v(kernel.dim_v));
}

CacheKernel kernel_of(const Bound<AttentionWithKvCache>& c) {
  const DType type = c.type("q"), compute = multiplied_type(type, c.on_gpu());
  const int dim = c.small_dim("d"), dim_v = c.small_dim("d_v");
  CacheKernel kernel{.type = type,
                     .cache = c.type("k_cache"),
                     .compute = compute,
                     .dim = dim,
                     .dim_v = dim_v,
                     .padded = c.type("k_cache").bits() == 8 ? byte_tile_features(dim, dim_v, compute)
                                                             : wide_tile_features(dim, dim_v, compute),
                     .form = {c.has("block_table"), c.has("cache_seqlens")},
                     .k_scale = scale_of(c, "k_scale"),
                     .v_scale = scale_of(c, "v_scale"),
                     .causal = c->causal,
                     .left = c->left >= 0,
                     .tree = c.has("tree_mask"),
                     .softcap = score_cap(c->softcap),
                     .sinks = c.type_if("sinks")};
  kernel.padded.copied = false;  // threads bring what the copy engine does not take
  const bool in_8_bits = kernel.cache.bits() == 8;
  if (has_copy_engine(c.call()) && compute.bits() == 16) {
    kernel.off = elements_off_pieces(c["k_cache"]), kernel.off_v = elements_off_pieces(c["v_cache"]);
    kernel.form.by_threads = kernel.off > 0 || kernel.off_v > 0 || !are_whole_pieces(dim, kernel.cache) ||
                             !are_whole_pieces(dim_v, kernel.cache);
  }
  // Four warps load rows of 128 bytes, one those of 64.
  constexpr int loaded_by_four_warps = 128;
  if (kernel.form.by_threads && in_8_bits) {
    kernel.padded.dim = std::max(kernel.padded.of(dim), loaded_by_four_warps);
    kernel.padded.dim_v = std::max(kernel.padded.of_v(dim_v), loaded_by_four_warps);
  }
  const Tiles tiles = c.on_gpu() ? tiles_on_gpu(c, kernel) : tiles_on_cpu(c, kernel);
  kernel.queries = tiles.queries, kernel.pack = tiles.pack;
  choose_keys(c, tiles.keys, kernel);
  kernel.form.gathers = !c.on_gpu() && kernel.form.page == 1;
  if (c.on_gpu()) choose_few_rows(c, kernel);
  kernel.form.by_threads |= come_by_threads(c, kernel);
  kernel.parted = c.dim("group") > kernel.pack;
  return kernel;
}

// Tiles of the heads of a group.
std::int64_t member_tiles(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  return (c.dim("group") + kernel.pack - 1) / kernel.pack;
}

// So many blocks get all that memory gives: dividing their keys among the other processors saves nothing, and
// a merge takes 5 us, of 16 tokens 25 (measured: 2048 to 32768 keys of 16 bits; of 8 bits a block waits for
// what widens them). Rows that come by 16 or fewer need more blocks where keys are many. Where lengths are
// given and a sequence may be longer, one may be left alone with far more keys than others, unless it is
// shared by blocks then.
bool are_enough(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel, std::int64_t blocks) {
  constexpr std::int64_t blocks_of_memory = 64, blocks_of_few_rows = 96, few_rows = 32, many_keys = 4096,
                         longest_of_its_own = 32768;
  if (!c.on_gpu() || kernel.cache.bits() != 16 || kernel.block > 0) return false;
  const bool slow = rows_of_box(c, kernel) < few_rows && c.dim("seen") > many_keys;
  return blocks >= (slow ? blocks_of_few_rows : blocks_of_memory) &&
         (kernel.shares || !kernel.form.lengths || c.dim("seen") <= longest_of_its_own);
}

int planned_splits(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  if (c->splits > 0) return c->splits;
  if (are_enough(c, kernel, c.dim("batch") * c.dim("kv_heads") * member_tiles(c, kernel))) return 1;
  return plan_cache_splits({.batch = c.dim("batch"),
                            .heads = c.dim("kv_heads") * member_tiles(c, kernel),
                            .queries = c.dim("queries"),
                            .keys = c.dim("seen"),
                            .left = c->left,
                            .tile_queries = kernel.queries,
                            .tile_keys = kernel.keys,
                            .dim = kernel.dim,
                            .dim_v = kernel.dim_v},
                           kernel.compute, c.on_gpu());
}

// To list sequences and to merge parts takes 4 to 7 us.
constexpr std::int64_t least_bytes_of_shares = std::int64_t{1} << 30;

std::int64_t row_bytes(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel) {
  return c.dim("kv_heads") * (kernel.dim + kernel.dim_v) * kernel.cache.bytes();
}

void note_on_cpu(const Bound<AttentionWithKvCache>& c, const CacheKernel& kernel, Launch& launch) {
  if (c.on_gpu()) return;
  note_scores(kernel.dim, kernel.dim_v, kernel.compute, kernel.softcap, launch);
  note_widened_cache(kernel.cache, launch);
  note_packed_for_few_rows(std::min<std::int64_t>(c.dim("queries"), kernel.queries) *
                               std::min<std::int64_t>(c.dim("group"), kernel.pack),
                           launch);
}

void run(const Bound<AttentionWithKvCache>& c, Launch& launch) {
  CacheKernel kernel = kernel_of(c);
  note_on_cpu(c, kernel, launch);
  if (c.on_gpu()) note_pages(kernel.form, c.dim("page_size"), launch);
  note_rows_off_pieces(kernel.off + kernel.off_v, launch);
  const std::int64_t tiles = c.dim("kv_heads") * member_tiles(c, kernel) *
                             ((c.dim("queries") + kernel.queries - 1) / kernel.queries);
  // Of chosen blocks there are about as many for each sequence.
  kernel.shares = c->splits == 0 && kernel.block == 0 && c.dim("queries") <= kernel.queries &&
                  shares_keys(c.call(), tiles, row_bytes(c, kernel), least_bytes_of_shares);
  int splits = planned_splits(c, kernel);
  if (kernel.shares && splits == 1 && is_one_round(c.call(), tiles)) {
    kernel.shares = false;
    splits = planned_splits(c, kernel);
  }
  kernel.split = splits > 1 && !kernel.shares;
  kernel.longest_first = kernel.block == 0 && !kernel.shares && deals_longest_first(c.call(), tiles * splits);
  if (kernel.shares) splits = shares_of_splits(c.call(), tiles, splits);
  launch(kernel, cache_kernel,
         {{"k_cache", with_longer_rows(c.formed("k_cache"), kernel.off)},
          {"v_cache", with_longer_rows(c.formed("v_cache"), kernel.off_v)},
          {"scale", program_scale(static_cast<float>(c.real("scale")), c->softcap)},
          {"left", std::min<std::int64_t>(c->left, 1 << 29)},
          {"cap", c->softcap},
          {"splits", splits}});
}

// That of q, or e4m3.
bool has_type(const Bound<AttentionWithKvCache>& c) {
  return c.type("k_cache") == e4m3 || c.type("k_cache") == c.type("q");
}

void add_chosen_blocks(Schema<AttentionWithKvCache>& table) {
  table
      .in(&AttentionWithKvCache::indices, "indices", "batch ~kv_heads entries", index,
          "numbers of the key blocks that a sequence sees; other numbers, such as -1, select nothing; "
          "duplicates count once")
      .converts()
      .range("-1", "ceildiv(room,k_block_size)+1")
      .in(&AttentionWithKvCache::counts, "counts", "batch ~kv_heads", index,
          "number of used entries of each list; all if omitted")
      .converts()
      .range("0", "entries+2")
      .in(&AttentionWithKvCache::mask, "mask", "batch ~kv_heads mask_blocks", is(boolean),
          "instead of indices: whether a sequence sees a block of keys")
      .option(&AttentionWithKvCache::k_block_size, "k_block_size",
              "keys per block of the indices or the mask", block_size)
      .let("seen", "indices ? min(entries*k_block_size, room) : room")
      .require("indices", "indices + mask <= 1", "either indices or mask", "give one of them")
      .require("counts", "counts <= indices", "counts with indices only", "leave it out")
      .require("mask", "mask ? mask_blocks*k_block_size >= room : 1",
               "all blocks of the {room} keys of the capacity", "check k_block_size");
}

void add_cache_scales(Schema<AttentionWithKvCache>& table) {
  using Op = AttentionWithKvCache;
  const char* dims = "block_table ? ~pages ~page_size ~kv_heads : ~batch ~keys ~kv_heads";
  table
      .in(&Op::k_scale, "k_scale", dims, is(f32),
          "positive factors of keys: one, one for each head, or for each token and head")
      .range("1", "3")
      .in(&Op::v_scale, "v_scale", dims, is(f32), "factors of values, likewise")
      .range("1", "3");
}

std::vector<Example> cache_examples() {
  return {
      {"small", "batch=2 queries=1 keys=21 kv_heads=2 group=2 d=16 d_v=12"},
      {"lengths_causal_bf16",
       "batch=3 queries=3 keys=150 kv_heads=2 group=3 d=64 d_v=64 bf16 cache_seqlens causal"},
      {"tree_sinks",
       "batch=2 queries=4 keys=40 kv_heads=1 group=4 d=24 d_v=16 f16 cache_seqlens tree_mask sinks:f32"},
      {"window_softcap_splits",
       "batch=2 queries=2 keys=300 kv_heads=1 group=2 d=32 d_v=32 bf16 left=70 causal softcap=5 splits=3"},
      {"wide_softcap", "batch=1 queries=1 keys=100 kv_heads=1 group=2 d=32 d_v=32 f16 softcap=1e6"},
      {"pages_of_16",
       "batch=3 queries=2 pages=20 page_size=16 table_width=11 kv_heads=2 group=4 d=64 d_v=64 bf16 causal "
       "block_table cache_seqlens splits=2"},
      {"odd_strides_bf16",
       "batch=3 queries=2 keys=150 kv_heads=2 group=4 d=64 d_v=128 bf16 cache_seqlens causal strides=odd"},
      {"odd_strides_64_features_f16",
       "batch=3 queries=1 keys=300 kv_heads=2 group=8 d=64 d_v=64 f16 cache_seqlens strides=odd"},
      {"odd_strides_pages_of_16",
       "batch=3 queries=1 pages=20 page_size=16 table_width=11 kv_heads=2 group=4 d=72 d_v=64 f16 "
       "block_table cache_seqlens strides=odd"},
      {"odd_strides_e4m3",
       "batch=2 queries=1 keys=150 kv_heads=2 group=4 d=64 d_v=64 bf16 k_cache:e4m3 k_scale v_scale "
       "cache_seqlens strides=odd"},
      {"pages_of_5",
       "batch=2 queries=1 pages=9 page_size=5 table_width=6 kv_heads=1 group=2 d=16 d_v=16 "
       "block_table cache_seqlens"},
      {"pages_of_256",
       "batch=2 queries=1 pages=3 page_size=256 table_width=2 kv_heads=1 group=80 d=16 d_v=16 f16 "
       "block_table cache_seqlens"},
      {"e4m3_per_head",
       "batch=2 queries=1 keys=70 kv_heads=2 group=2 d=64 d_v=64 bf16 k_cache:e4m3 k_scale v_scale "
       "cache_seqlens sinks:f32"},
      {"e4m3_per_token_paged",
       "batch=2 queries=2 pages=5 page_size=32 table_width=4 kv_heads=1 group=4 d=32 d_v=32 bf16 "
       "k_cache:e4m3 k_scale v_scale block_table cache_seqlens causal"},
      {"lists_bf16",
       "batch=2 queries=2 keys=210 kv_heads=2 group=4 d=64 d_v=64 bf16 indices entries=4 k_block_size=32 "
       "cache_seqlens causal splits=2"},
      {"lists_counts_pages",
       "batch=2 queries=1 pages=9 page_size=32 table_width=6 kv_heads=2 group=2 d=32 d_v=32 f16 indices "
       "counts "
       "entries=5 k_block_size=16 block_table cache_seqlens"},
      {"mask_odd_blocks_pages_of_64",
       "batch=2 queries=3 pages=7 page_size=64 table_width=3 kv_heads=1 group=4 d=32 d_v=32 bf16 mask "
       "mask_blocks=9 k_block_size=24 block_table cache_seqlens causal"},
      {"512_features_bf16",
       "batch=2 queries=3 keys=200 kv_heads=2 group=4 d=512 d_v=512 bf16 cache_seqlens causal left=90 "
       "sinks:f32 softcap=20"},
      {"512_features_e4m3_pages",
       "batch=2 queries=4 pages=20 page_size=16 table_width=10 kv_heads=2 group=4 d=512 d_v=512 f16 "
       "k_cache:e4m3 k_scale v_scale block_table cache_seqlens tree_mask splits=2"},
      {"256_features_16_tokens_pages_of_128",
       "batch=2 queries=16 pages=5 page_size=128 table_width=2 kv_heads=2 group=8 d=256 d_v=256 bf16 "
       "block_table cache_seqlens causal"},
      {"small_blocks",
       "batch=2 queries=1 keys=45 kv_heads=2 group=2 d=16 d_v=16 indices entries=9 k_block_size=3"}};
}

std::vector<Example> cache_measured() {
  const std::string heads = " kv_heads=8 group=8 d=128 d_v=128 bf16 ";
  return {{"32x8k", "batch=32 queries=1 keys=8192" + heads},
          {"32x8k_lengths", "batch=32 queries=1 keys=8192 cache_seqlens" + heads},
          {"32x8k_8_tokens", "batch=32 queries=8 keys=8192 cache_seqlens causal" + heads},
          {"32x8k_pages_of_64",
           "batch=32 queries=1 pages=4096 page_size=64 table_width=128 block_table cache_seqlens" + heads},
          {"32x8k_pages_of_16",
           "batch=32 queries=1 pages=16384 page_size=16 table_width=512 block_table cache_seqlens" + heads},
          {"32x8k_blocks_of_64_a_tenth",
           "batch=32 queries=1 keys=8192 cache_seqlens indices entries=13 k_block_size=64" + heads},
          {"32x8k_blocks_of_64_a_tenth_pages",
           "batch=32 queries=1 pages=4096 page_size=64 table_width=128 block_table cache_seqlens indices "
           "entries=13 k_block_size=64" +
               heads},
          {"32x8k_e4m3", "batch=32 queries=1 keys=8192 cache_seqlens k_cache:e4m3 k_scale v_scale" + heads}};
}

}  // namespace

const OperatorSchema& attention_with_kv_cache_schema() {
  using Op = AttentionWithKvCache;
  static const OperatorSchema table =
      Schema<Op>("attention_with_kv_cache",
                 "attention of the newest tokens to a cache of keys and values, paged or not")
          .in(&Op::q, "q", "batch queries (kv_heads*group) d", floats, "queries of the last tokens")
          .unit_stride()
          .remedy("give q a multiple of the heads of the cache")
          .in(&Op::k_cache, "k_cache", cache_dims("kv_heads d"), one_of({f32, f16, bf16, e4m3}), "keys")
          .unit_stride()
          .remedy("give it the features of q, and a row for each sequence or pages with a block table")
          .in(&Op::v_cache, "v_cache", cache_dims("kv_heads d_v"), same_as("k_cache"), "values")
          .unit_stride()
          .remedy("give it the rows and heads of k_cache")
          .with(add_cache_rows<Op>)
          .with(add_cache_scales)
          .with(add_chosen_blocks)
          .in(&Op::sinks, "sinks", query_heads, floats,
              "one logit per head that is added to the sum of the softmax but has no value")
          .remedy("give every head of q a sink")
          .with(add_scale<Op>)
          .with(add_last_queries<Op>)
          .with(add_softcap<Op>)
          .with(add_splits<Op>)
          .out(&Op::out, "out", "batch queries (kv_heads*group) d_v", same_as("q"), out_of_cache)
          .unit_stride()
          .out(&Op::lse, "lse", "batch (kv_heads*group) queries", is(f32), lse_of_cache)
          .steps_of("q")
          .require("k_cache", has_type, "the dtype of q, or e4m3", "convert it")
          .require("k_cache", "group >= 1", "no heads, as q", "give q a head for each of the cache, or more")
          .require("q", "1 <= d & d <= 512", "1 to 512 features", "split the heads")
          .require("v_cache", "1 <= d_v & d_v <= 512", "1 to 512 features", "split the heads")
          .source(
              "Dao et al. 2023, Flash-Decoding for long-context inference; pages as in Kwon et al. 2023, "
              "PagedAttention")
          .no_gradient("a cache is for inference; attention has one")
          .flops("2*batch*kv_heads*group*queries*seen*(d + d_v)")
          .examples(cache_examples())
          .measured(cache_measured())
          .maps(cache_maps())
          .run(on_moved_rows<Op, run, RowsToMove::few>, cache_formula);
  return table;
}

}  // namespace tegula::ops
