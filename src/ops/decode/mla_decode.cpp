#include "tegula/ops/mla_decode.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/decode/kernel.hpp"
#include "ops/decode/maps.hpp"
#include "ops/decode/records.hpp"
#include "ops/decode/table.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

CacheScale latent_scale(const Bound<MlaDecode>& c) {
  if (!c.has("kv_scale")) return CacheScale::none;
  const TensorRef& scale = c["kv_scale"];
  return scale.size(0) == 1 && scale.size(1) == 1 ? CacheScale::head : CacheScale::token;
}

CacheKernel mla_kernel(const Bound<MlaDecode>& c) {
  const DType type = c.type("q"), compute = multiplied_type(type, c.on_gpu());
  const int dim = c.small_dim("d"), dim_v = static_cast<int>(c->d_v);
  const bool fast = compute.bits() == 16;
  CacheKernel kernel{.type = type,
                     .cache = c.type("kv_cache") == u8 ? e4m3 : c.type("kv_cache"),
                     .compute = compute,
                     .dim = dim,
                     .dim_v = dim_v,
                     .padded = wide_tile_features(dim - dim_v, dim_v, compute),
                     .form = {c.has("block_table"), c.has("cache_seqlens")},
                     .latent = true,
                     .record = record_of(c.call(), "kv_cache"),
                     .k_scale = latent_scale(c),
                     .v_scale = latent_scale(c),
                     .causal = c->causal,
                     .left = c->left >= 0,
                     .tree = c.has("tree_mask"),
                     .softcap = score_cap(c->softcap),
                     .sinks = c.type_if("sinks")};
  kernel.padded.copied = false;
  if (has_copy_engine(c.call()) && compute.bits() == 16 && kernel.cache.bits() == 16) {
    kernel.off = elements_off_pieces(c["kv_cache"]);
    kernel.form.by_threads = kernel.off > 0;
  }
  const int rows = fast || !c.on_gpu() ? warp_group_rows : 16;
  const auto heads = static_cast<int>(std::max<std::int64_t>(c.dim("heads"), 1));
  kernel.pack = std::min<int>(c.on_gpu() ? std::bit_ceil(static_cast<unsigned>(heads)) : heads, rows);
  kernel.queries = std::max(rows / kernel.pack, 1);
  if (!c.on_gpu()) kernel.queries = std::clamp<int>(c.small_dim("queries"), 1, kernel.queries);
  kernel.keys = fast || !c.on_gpu() ? 64 : 16;
  if (kernel.form.paged) kernel.form.page = page_of_form(c.dim("page_size"), kernel.keys);
  kernel.form.gathers = !c.on_gpu() && kernel.form.page == 1;
  kernel.parted = heads > kernel.pack;
  // Of records, threads that convert are what a step waits for: there are more of them beside one warp group.
  constexpr int most_few_rows = 16;
  if (c.on_gpu() && kernel.record != CacheRecord::none) kernel.take_few_rows(c.dim("queries"), most_few_rows);
  return kernel;
}

// With a dim for the one head of the cache.
TensorRef with_head(TensorRef tensor) {
  if (tensor.data == nullptr && tensor.shape.empty()) return tensor;
  tensor.shape.insert(tensor.shape.begin() + 2, 1);
  tensor.strides.insert(tensor.strides.begin() + 2, 0);
  return tensor;
}

// To list sequences and to merge parts takes 11 us.
constexpr std::int64_t least_bytes_of_latents = std::int64_t{2} << 30;

void run_mla(const Bound<MlaDecode>& c, Launch& launch) {
  CacheKernel kernel = mla_kernel(c);
  note_rows_off_pieces(kernel.off, launch);
  note_widened_cache(kernel.cache, launch);
  note_packed_for_few_rows(std::min<std::int64_t>(c.dim("queries"), kernel.queries) *
                               std::min<std::int64_t>(c.dim("heads"), kernel.pack),
                           launch);
  const std::int64_t heads = c.dim("heads"), tiles = (heads + kernel.pack - 1) / kernel.pack;
  int splits = c->splits > 0
                   ? c->splits
                   : plan_cache_splits({c.dim("batch"), tiles, c.dim("queries"), c.dim("room"), c->left,
                                        kernel.queries, kernel.keys, kernel.dim, kernel.dim_v},
                                       kernel.compute, c.on_gpu());
  kernel.shares =
      c->splits == 0 && c.dim("queries") <= kernel.queries &&
      shares_keys(c.call(), tiles, c.dim("row") * c.type("kv_cache").bytes(), least_bytes_of_latents);
  if (kernel.shares) splits = shares_of_splits(c.call(), tiles, splits);
  kernel.split = splits > 1 && !kernel.shares;
  kernel.longest_first =
      !kernel.split && !kernel.shares &&
      deals_longest_first(c.call(), tiles * ((c.dim("queries") + kernel.queries - 1) / kernel.queries));
  const auto of_group = [&](const char* name, int dim) {  // heads become [1, heads]
    const TensorRef own = c.given(name);
    return own.shape.empty() ? own : split_heads(own, dim, heads);
  };
  const TensorRef scales = c.has("kv_scale") ? with_head(c.formed("kv_scale")) : TensorRef();
  const RecordViews views = record_views(c.given("kv_cache"), kernel.record);
  launch(kernel, cache_kernel,
         {{"q", of_group("q", 2)},
          {"out", of_group("out", 2)},
          {"lse", of_group("lse", 1)},
          {"sinks", of_group("sinks", 0)},
          {"k_cache", with_longer_rows(with_head(views.first), kernel.off)},
          {"factors", with_head(views.factors)},
          {"last_features", with_head(views.last)},
          {"k_scale", scales},
          {"v_scale", scales},
          {"scale", program_scale(static_cast<float>(c.real("scale")), c->softcap)},
          {"left", std::min<std::int64_t>(c->left, 1 << 29)},
          {"cap", c->softcap},
          {"splits", splits}});
}

void mla_formula(const Bound<MlaDecode>& c, Exact& exact) {
  const Tensor &q = exact["q"], &out = exact["out"], &lse = exact["lse"];
  const double* sinks = exact.data_if("sinks");
  const std::int64_t d = c.dim("d");
  const RecordReader reader(c.call(), "kv_cache");
  for (std::int64_t b = 0; b < c.dim("batch"); ++b) {
    const SequencePlaces sequence(c.call(), b);
    const Tensor rows = Tensor::zeros({sequence.length, d}, f64);
    double* next = rows.data_as<double>();
    for (const auto& [page, row] : sequence.places) {
      const double scale = page >= 0 && c.has("kv_scale") ? exact.array("kv_scale")(page, row) : 1;
      for (std::int64_t j = 0; j < d; ++j) {
        const double value = page < 0 ? 0 : reader(page, row, j);
        *next++ = scale * (reader.is_record() ? exact.rounded(value) : value);
      }
    }
    const auto sight = sight_of(c.call(), b, sequence, c->causal, c->left);
    for (std::int64_t h = 0; h < c.dim("heads"); ++h) {
      reference::Softmax softmax{.scale = c.real("scale"), .softcap = c->softcap, .steps = exact.steps()};
      if (sinks) softmax.sink = sinks[h];
      reference::attend(softmax, {q.select(0, b).select(1, h), rows, rows.slice(1, 0, c->d_v), sight},
                        out.select(0, b).select(1, h), lse.select(0, b).select(0, h));
    }
  }
}

// That of q, e4m3, or the bytes of records.
bool has_mla_type(const Bound<MlaDecode>& c) {
  const DType type = c.type("kv_cache");
  return type == e4m3 || type == c.type("q") || (type == u8 && c.type("q") == bf16);
}
bool has_width(const Bound<MlaDecode>& c) {
  const std::int64_t bytes = c.dim("row"), d = c.dim("d");
  if (c.type("kv_cache") != u8) return bytes == d;
  return c->d_v == 512 && ((bytes == 656 && d == 576) || (bytes == 584 && d == 512));
}
bool is_contiguous(const Bound<MlaDecode>& c) {
  return c.type("kv_cache") != u8 || are_records(c["kv_cache"]);
}

// Rates count all rows of a cache; only the last two have sequences of other lengths, half as long on
// average.
std::vector<Example> mla_measured() {
  const std::string v3 = " queries=1 keys=8192 d=576 row=576 bf16 ",
                    pages = " queries=1 pages=16384 page_size=64 table_width=128 block_table bf16 ",
                    records = pages + "kv_cache:u8 ";
  return {{"128x8k_128_heads", "batch=128 heads=128" + v3},
          {"128x8k_128_heads_2_tokens", "batch=128 heads=128" + v3 + "queries=2 causal"},
          {"128x8k_16_heads", "batch=128 heads=16" + v3},
          {"128x8k_64_heads_512", "batch=128 queries=1 keys=8192 heads=64 d=512 row=512 bf16"},
          {"128x8k_pages_of_64", "batch=128 heads=128 d=576 row=576" + pages},
          {"128x8k_656_bytes", "batch=128 heads=128 d=576 row=656" + records},
          {"128x8k_584_bytes", "batch=128 heads=64 d=512 row=584" + records},
          {"128x8k_656_bytes_8_heads", "batch=128 heads=8 d=576 row=656" + records},
          {"128x_up_to_8k_pages_of_64", "batch=128 heads=128 d=576 row=576 cache_seqlens" + pages},
          {"128x_up_to_8k_656_bytes", "batch=128 heads=128 d=576 row=656 cache_seqlens" + records}};
}

void add_mla_rules(Schema<MlaDecode>& table) {
  table.require("kv_cache", has_mla_type, "the dtype of q, e4m3, or u8 with q in bf16", "convert it")
      .require("kv_cache", has_width,
               "rows of {d} features, or records of 656 bytes for 576 features, 584 for 512, with d_v 512",
               "check the features of q")
      .require("kv_cache", is_contiguous, "contiguous records at addresses that are multiples of 16",
               "pass a contiguous copy")
      .require("d_v", "d_v <= d & d <= 640", "no more than the {d} features of a row, at most 640",
               "give those that are values")
      .require("kv_scale", "kv_scale ? row == d : 1", "rows of features: records have their own factors",
               "leave it out");
}

std::vector<Example> mla_examples() {
  return {{"small", "batch=2 queries=1 keys=20 heads=3 d=24 row=24 d_v=16"},
          {"lengths_bf16",
           "batch=2 queries=2 keys=90 heads=16 d=80 row=80 d_v=64 bf16 cache_seqlens causal "
           "sinks:f32"},
          {"keys_are_values_f16", "batch=2 queries=1 keys=140 heads=70 d=64 row=64 d_v=64 f16 splits=2"},
          {"pages",
           "batch=2 queries=2 pages=7 page_size=64 table_width=3 heads=8 d=192 row=192 d_v=128 bf16 "
           "block_table cache_seqlens causal splits=2"},
          {"odd_strides_bf16",
           "batch=2 queries=2 keys=150 heads=16 d=80 row=80 d_v=64 bf16 cache_seqlens causal strides=odd"},
          {"odd_strides_pages_f16",
           "batch=2 queries=1 pages=9 page_size=16 table_width=5 heads=70 d=96 row=96 d_v=64 f16 block_table "
           "cache_seqlens strides=odd"},
          {"pages_e4m3",
           "batch=2 queries=1 pages=9 page_size=16 table_width=5 heads=5 d=80 row=80 d_v=64 bf16 "
           "block_table cache_seqlens kv_cache:e4m3 kv_scale"},
          {"records_of_656",
           "batch=1 queries=1 pages=3 page_size=64 table_width=2 heads=4 d=576 row=656 bf16 "
           "block_table cache_seqlens kv_cache:u8"},
          {"records_of_584",
           "batch=1 queries=1 pages=3 page_size=64 table_width=2 heads=4 d=512 row=584 bf16 "
           "block_table cache_seqlens kv_cache:u8"},
          {"512_features", "batch=2 queries=1 keys=90 heads=16 d=512 row=512 bf16 cache_seqlens sinks:f32"},
          {"512_features_8_tokens_128_heads",
           "batch=2 queries=8 pages=9 page_size=64 table_width=4 heads=128 d=512 row=512 bf16 block_table "
           "cache_seqlens causal sinks:f32"},
          {"512_features_e4m3",
           "batch=2 queries=2 pages=20 page_size=16 table_width=9 heads=128 d=512 row=512 bf16 block_table "
           "cache_seqlens kv_cache:e4m3 kv_scale causal"},
          {"records_of_656_8_tokens_128_heads",
           "batch=2 queries=8 pages=9 page_size=64 table_width=4 heads=128 d=576 row=656 bf16 block_table "
           "cache_seqlens kv_cache:u8 causal sinks:f32"},
          {"records_of_584_8_tokens_128_heads",
           "batch=2 queries=8 pages=9 page_size=64 table_width=4 heads=128 d=512 row=584 bf16 block_table "
           "cache_seqlens kv_cache:u8 causal sinks:f32 splits=2"}};
}

}  // namespace

const OperatorSchema& mla_decode_schema() {
  static const OperatorSchema table =
      Schema<MlaDecode>(
          "mla_decode",
          "attention of the newest tokens to a cache of latents, which serve all heads as keys and values")
          .in(&MlaDecode::q, "q", "batch queries heads d", floats, "absorbed queries of the last tokens")
          .unit_stride()
          .in(&MlaDecode::kv_cache, "kv_cache", cache_dims("row"), one_of({f32, f16, bf16, e4m3, u8}),
              "latent rows, whose first d_v features are the values, or records of bytes")
          .values(random_records)
          .unit_stride()
          .remedy("give it a row for each token of a sequence, or pages with a block table")
          .with(add_cache_rows<MlaDecode>)
          .in(&MlaDecode::kv_scale, "kv_scale", "block_table ? ~pages ~page_size : ~batch ~keys", is(f32),
              "positive factors of rows: one for all, or one per row")
          .range("1", "3")
          .in(&MlaDecode::sinks, "sinks", "heads", floats,
              "one logit per head that is added to the sum of the softmax but has no value")
          .remedy("give every head of q a sink")
          .option(&MlaDecode::d_v, "d_v", "leading features of a row that are its value",
                  between(1, 512, "a number of features from 1 to 512", "give those of the latents"))
          .with(add_scale<MlaDecode>)
          .with(add_last_queries<MlaDecode>)
          .with(add_softcap<MlaDecode>)
          .with(add_splits<MlaDecode>)
          .out(&MlaDecode::out, "out", "batch queries heads d_v", same_as("q"), out_of_cache)
          .unit_stride()
          .out(&MlaDecode::lse, "lse", "batch heads queries", is(f32), lse_of_cache)
          .steps_of("q")
          .with(add_mla_rules)
          .source("DeepSeek-AI 2024, DeepSeek-V2: decoding of its multi-head latent attention")
          .no_gradient("a cache is for inference; attention has one")
          .flops("2*batch*heads*queries*room*(d + d_v)")
          .examples(mla_examples())
          .measured(mla_measured())
          .maps(latent_maps())
          .run(on_moved_rows<MlaDecode, run_mla, RowsToMove::few>, mla_formula);
  return table;
}

}  // namespace tegula::ops
