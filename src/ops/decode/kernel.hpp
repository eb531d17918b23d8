// The tile program of attention to a cache.
#pragma once
#include <optional>
#include <tuple>

#include "ops/decode/cache_rows.hpp"
#include "ops/pieces/features.hpp"
#include "ops/pieces/score_cap.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// For what the cache has a factor.
enum class CacheScale { none, head, token };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> choice_names<CacheScale>{
    "none", "head", "token"};

// How a row of a cache of latents is laid out in bytes.
enum class CacheRecord {
  none,
  tiles_of_128,  // 512 e4m3, an f32 factor for each 128 of them, 64 bf16
  tiles_of_64,   // 448 e4m3 and 64 bf16; apart from them a power of two for each 64 of the former
};
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> choice_names<CacheRecord>{
    "none", "tiles_of_128", "tiles_of_64"};

struct CacheKernel {
  DType type = f32, cache = f32;  // of q and out, and of the cache
  DType compute = f32;            // of the tiles that are multiplied
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};
  CacheForm form = {};
  int off = 0, off_v = 0;  // elements of a row of the caches that a program does not read
  bool latent = false;     // the values are the first features of the keys
  CacheRecord record = CacheRecord::none;
  CacheScale k_scale = CacheScale::none, v_scale = CacheScale::none;
  // Rows of a tile are queries × heads of a group. A group that is no power of two has rows that are none of
  // its heads; `parted`: it has more heads than a tile.
  int pack = 1, queries = 64, keys = 64;
  bool parted = false;
  // Keys of a block, of which a sequence sees chosen ones, by lists or a mask; 0: it sees all. `listed`: of
  // so many blocks that are marked at a time.
  int block = 0, listed = 0;
  bool mask = false, counts = false;
  bool causal = false, left = false, tree = false, split = false;
  ScoreCap softcap = ScoreCap::none;
  bool longest_first = false;  // blocks of long sequences come before those of short ones
  // They do, and a sequence far longer than the mean has several blocks; `splits` are then the shares of all.
  bool shares = false;
  std::optional<DType> sinks = {};

  // A tile of few rows, `most` or fewer, is multiplied transposed: keys, and features of the result, are then
  // the rows of products of warp groups, and no exponential is that of an empty row. Whether the tile is one.
  bool take_few_rows(std::int64_t all_queries, int most);
  int rows() const { return queries * pack; }
  int tiles_of_block() const { return (block + keys - 1) / keys; }
  int rest() const { return dim - dim_v; }  // features of latent keys that are no values
  int in_8_bits() const { return record == CacheRecord::tiles_of_64 ? dim_v - 64 : dim_v; }  // of a record
  int features() const { return padded.multiplied(dim); }
  int features_v() const { return padded.multiplied_v(dim_v); }
  auto fields() const {
    return std::tuple(
        type, labelled("cache", cache), compute, labelled("d", dim), labelled("v", dim_v), padded, form,
        labelled("off", off > 0 ? std::optional(off) : std::nullopt),
        labelled("off_v", off_v > 0 ? std::optional(off_v) : std::nullopt), labelled("latent", latent),
        labelled("record", record), labelled("ks", k_scale), labelled("vs", v_scale), labelled("g", pack),
        labelled("q", queries), labelled("k", keys), labelled("parted", parted),
        labelled("block", block > 0 ? std::optional(block) : std::nullopt),
        labelled("listed", listed > 0 ? std::optional(listed) : std::nullopt), labelled("mask", mask),
        labelled("counts", counts), labelled("causal", causal), labelled("left", left),
        labelled("tree", tree), softcap, labelled("split", split), labelled("longest_first", longest_first),
        labelled("shares", shares), labelled("sinks", sinks));
  }
};

// Arguments: q, k_cache, v_cache, out, lse; of records, k_cache has their first features, factors and
// last_features the others; where the instance has them block_table, cache_seqlens, k_scale,
// v_scale, tree_mask, indices, counts, mask, sinks; scale, with log2(e) unless there is a cap, left, cap,
// splits.
lang::Kernel cache_kernel(const CacheKernel& instance);

}  // namespace tegula::ops
