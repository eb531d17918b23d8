#include "ops/decode/cache_rows.hpp"
#include "ops/latent/sparse_mla_call.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

int planned_splits(const Bound<SparseMla>& c, const SparseMlaKernel& kernel) {
  if (c->splits > 0) return c->splits;
  if (!c.on_gpu()) return 1;
  const std::int64_t of_query = (c.dim("group") + kernel.rows - 1) / kernel.rows,
                     steps = (c.dim("entries") + kernel.keys - 1) / kernel.keys;
  return planned_splits(c.dim("batch") * c.dim("queries") * c.dim("kv_heads") * of_query, steps,
                        gpu_table.latents, planned_gpu_processors(c.call()));
}

// Tiles of few heads wait for the rows that lists name, which serve no other query.
void note_few_heads(const Bound<SparseMla>& c, Launch& launch) {
  constexpr int many_heads = 32;
  if (!c.on_gpu() || c.dim("group") > many_heads) return;
  launch.note([&] {
    return fmt::format(
        "plan: the {} bytes of a listed row come for {} heads of one query, and take longer than their "
        "products",
        c.dim("d") * c.type("q").bytes(), c.dim("group"));
  });
}

void note_splits(int splits, bool on_gpu, Launch& launch) {
  if (!on_gpu || splits == 1) return;
  launch.note([&] {
    return fmt::format(
        "plan: few queries, so that {} blocks share the list of a query, and another grid merges their parts",
        splits);
  });
}

// A query's rows are read once, and its results stored once: a copy would take longer.
int features_off_pieces(const Bound<SparseMla>& c, const SparseMlaKernel& kernel, Launch& launch) {
  const bool by_threads = has_copy_engine(c.call()) && kernel.type.bits() == 16 &&
                          are_whole_pieces(kernel.dim, kernel.type) &&
                          are_whole_pieces(kernel.dim_v, kernel.type);
  const int result = by_threads ? elements_off_pieces(c["q"]) : 0;
  if (result > 0)
    launch.note([] {
      return std::string(
          "plan: threads bring rows of q that do not begin at multiples of 16 bytes; pass contiguous "
          "tensors");
    });
  return result;
}

void run(const Bound<SparseMla>& c, Launch& launch) {
  note_few_heads(c, launch);
  note_packed_for_few_rows(c.dim("group"), launch);
  SparseMlaKernel kernel = sparse_mla_instance(c);
  const int splits = planned_splits(c, kernel);
  note_splits(splits, c.on_gpu(), launch);
  kernel.split = splits > 1 || kernel.more;
  kernel.off = features_off_pieces(c, kernel, launch);
  if (splits > 1) kernel.numbers_ahead = false;  // each has few steps
  const LatentViews q(c.formed("q"), c->d_v), kv(c.formed("kv"), c->d_v),
      more = c.has("more_kv") ? LatentViews(c.formed("more_kv"), c->d_v) : LatentViews();
  launch(kernel, sparse_mla_kernel,
         {{"q_values", with_longer_rows(q.values, kernel.off)},
          {"q_rest", with_longer_rows(q.rest, kernel.off)},
          {"kv_values", kv.values},
          {"kv_rest", kv.rest},
          {"more_values", more.values},
          {"more_rest", more.rest},
          {"scale", program_scale(static_cast<float>(c.real("scale")), 0)},
          {"offset", c.dim("keys") - c.dim("queries")},
          {"splits", splits}});
}

void formula(const Bound<SparseMla>& c, Exact& exact) {
  const ListedHeads heads(c, exact);
  const Tensor &out = exact["out"], &lse = exact["lse"];
  heads.each([&](const ListedHeads::One& own) {
    reference::attend(own.softmax, own.head, own.rows(out), own.rows(lse));
  });
}

std::vector<Example> listed_examples() {
  return {{"small", "queries=5 keys=11 kv_heads=1 group=3 d=12 d_v=8 entries=7"},
          {"two_heads_counts_f16",
           "batch=2 queries=2 keys=70 kv_heads=2 group=17 d=64 d_v=64 f16 entries=130 counts causal "
           "sinks:f32"},
          {"two_sources_bf16",
           "queries=2 keys=40 kv_heads=1 group=70 d=80 d_v=64 bf16 entries=64 sinks:f32 more_kv "
           "more_indices more_keys=30 more_entries=128 splits=2"},
          {"512_features",
           "queries=8 keys=300 kv_heads=1 group=128 d=512 d_v=512 bf16 entries=200 sinks:f32 more_kv "
           "more_indices more_keys=90 more_entries=64"},
          {"odd_strides_bf16",
           "batch=2 queries=40 keys=70 kv_heads=2 group=17 d=80 d_v=64 bf16 entries=66 counts "
           "strides=odd"},
          {"512_features_few_heads",
           "queries=2 keys=300 kv_heads=1 group=8 d=512 d_v=512 bf16 entries=200 causal counts"}};
}

std::vector<Example> listed_measured() {
  return {{"512", "queries=64 keys=2048 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=512"},
          {"4096_128_heads", "queries=4096 keys=32768 kv_heads=1 group=128 d=576 d_v=512 bf16 entries=2048"},
          {"4096_64_heads", "queries=4096 keys=32768 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=2048"},
          {"4096_16_heads", "queries=4096 keys=32768 kv_heads=1 group=16 d=576 d_v=512 bf16 entries=2048"},
          {"decode_128_heads", "queries=16 keys=32768 kv_heads=1 group=128 d=576 d_v=512 bf16 entries=2048"}};
}

}  // namespace

std::vector<CallMap> sparse_mla_maps() {
  const std::string base = "queries=2048 keys=8192 kv_heads=1 group=64 d=576 d_v=512 bf16 entries=1024";
  return {{"heads",
           base,
           {"group=1", "group=8", "group=16", "group=20", "group=32", "group=64", "group=96", "group=128"},
           {"", "d=512", "queries=1024 entries=2048", "entries=1000", "entries=64", "counts", "sinks:f32",
            "causal", "f16"}},
          // Lists of as many entries in all.
          {"queries",
           base,
           {"queries=1 entries=2048", "queries=16 entries=2048", "queries=64 entries=2048",
            "queries=133 entries=2048", "queries=512 entries=2048", "queries=1024", "queries=2048",
            "queries=2048 entries=512", "queries=4096 entries=512"},
           {"", "group=16", "group=128", "d=512"}},
          {"strides",
           base,
           {"strides=plain", "strides=sliced", "strides=padded", "strides=odd"},
           {"", "group=16", "d=512", "f16"}}};
}

const OperatorSchema& sparse_mla_schema() {
  using Op = SparseMla;
  static const OperatorSchema table =
      Schema<Op>("sparse_mla", "attention of every query to the latent rows in its list")
          .with(add_latents<Op>)
          .option(&Op::splits, "splits", "splits of a list, which are merged; 0: planned",
                  between(0, gpu_table.latents.most, "a number from 1 to 32, or 0 for the plan's choice",
                          "leave it out"))
          .out(&Op::out, "out", latent_out_dims, same_as("q"),
               "the weighted sums of values; 0 where no row is seen")
          .unit_stride()
          .out(&Op::lse, "lse", latent_lse_dims, is(f32),
               "natural logarithm of the sum of exp(score); -inf where no row is seen, with a sink its logit")
          .steps_of("q")
          .source("DeepSeek-AI 2025, DeepSeek-V3.2: DeepSeek Sparse Attention")
          .gradient("sparse_mla_backward")
          .flops("2*batch*queries*kv_heads*group*(entries + more_entries)*(d + d_v)")
          .examples(listed_examples())
          .measured(listed_measured())
          .maps(sparse_mla_maps())
          .run(on_moved_rows<Op, run, RowsToMove::keys>, formula);
  return table;
}

}  // namespace tegula::ops
