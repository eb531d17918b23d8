#include "ops/attention/attention.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "ops/attention/maps.hpp"
#include "ops/attention/notes.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/splits.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/reference/reference.hpp"
#include "ops/reference/softmax.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t widest = std::int64_t{1} << 29;  // as large as any tensor

}  // namespace

// What raw scores are multiplied by: see attention_kernel.
ProgramOptions program_options(const AttentionOptions& options, double scale) {
  return {.scale = program_scale(static_cast<float>(scale), options.softcap),
          .left = std::min(options.left, widest),
          .right = options.causal ? 0 : std::min(options.right, widest)};
}

// below(x) counts the pairs of all rows up to x that see the keys before them, so rows that see the keys
// before i + x have below(queries + x) − below(x) pairs.
std::string seen_pairs() {
  const std::string queries = "(queries/sequences)", keys = "(keys/sequences)";
  const auto below = [&](const std::string& x) {
    const std::string within = fmt::format("min(max({}, 0), {})", x, keys);
    return fmt::format("({0}*({0}-1)/2 + max({1}-{2}, 0)*{2})", within, x, keys);
  };
  const auto before = [&](const std::string& x) {
    return fmt::format("({}-{})", below(fmt::format("({}+{})", keys, x)),
                       below(fmt::format("({}-{}+{})", keys, queries, x)));
  };
  const std::string seen = fmt::format("(causal ? {} : right < 0 ? {}*{} : {})", before("1"), queries, keys,
                                       before("right+1")),
                    unseen = fmt::format("(left < 0 ? 0 : {})", before("(0-left)"));
  return fmt::format("batch*sequences*kv_heads*group*({}-{})", seen, unseen);
}

namespace {

// If so, copying rows that do not start at sectors pays off, because each block of queries reads them.
bool reads_keys_often(const AttentionProblem& problem, const AttentionKernel& kernel) {
  constexpr std::int64_t blocks = 8;
  const bool off = are_off_sectors(kernel.dim) || are_off_sectors(kernel.dim_v);
  return kernel.compute.bits() == 16 && kernel.type.bits() == 16 && off && !kernel.padded.copied &&
         problem.queries * problem.group >= blocks * kernel.queries * kernel.pack;
}

// What a thread has of sums, scores and weights in 8 bits, of a row of keys.
int registers_of_byte_weights(const AttentionKernel& kernel, int keys) {
  constexpr int elements_of_word = 4;
  return (kernel.features_v() + keys + keys / elements_of_word) / 2;
}

// Relative time of a score where weights are rounded to 8 bits, in steps of so many keys.
double time_of_byte_weights(const AttentionKernel& kernel, int keys) {
  constexpr int most_registers_of_two = 200;  // warp groups
  constexpr double of_64_keys = 1.21;         // measured with 128 features
  if (registers_of_byte_weights(kernel, keys) > most_registers_of_two) return never;
  return keys < 128 ? of_64_keys : 1;
}

// Weights and values are multiplied in 8 bits where queries are worth a grid that transposes the values. The
// keys of a tile are a power of two, so that the weights have the order of the instruction's registers.
void round_weights(const AttentionTiles& given, const AttentionProblem& problem, AttentionKernel& kernel,
                   AttentionPlan& plan) {
  constexpr int rows_worth_it = 512, step = 32, most_registers_of_three = 112;
  const bool few = given.queries == 0 && problem.queries * problem.group < rows_worth_it;
  if (kernel.compute.bits() != 8 || few) return;
  const std::array candidates{given.keys ? given.keys : 128, given.keys ? given.keys : 64};
  const auto time = [&](int keys) { return time_of_byte_weights(kernel, keys); };
  const int keys = best_of(candidates, time);
  const int groups = registers_of_byte_weights(kernel, keys) <= most_registers_of_three ? 3 : 2;
  const int queries = given.queries ? given.queries : groups * warp_group_rows;
  const bool has_order = keys % step == 0 && std::has_single_bit(static_cast<unsigned>(keys));
  if (!has_order || queries % warp_group_rows != 0 || queries > groups * warp_group_rows ||
      time(keys) == never)
    return;
  plan = {queries, keys, 1, plan.splits};
  kernel.weights = kernel.type;
}

// Tensor cores multiply queries and keys of 8 bits as they are, where their rows are whole steps of
// instructions. The values are widened, exactly, and multiplied by weights of 16 bits.
void multiply_8_bits(const Bound<Attention>& c, AttentionKernel& kernel) {
  constexpr int step = 32;
  kernel.out = c.type("out");
  kernel.q_scale = c.has("q_scale"), kernel.k_scale = c.has("k_scale"), kernel.v_scale = c.has("v_scale");
  if (!c.on_gpu()) return;
  kernel.compute = kernel.dim % step == 0 && c.target() != Target::cuda_sm80() ? kernel.type : f16;
  kernel.weights = f16;
  kernel.padded = wide_tile_features(kernel.dim, kernel.dim_v, f16);
  kernel.padded.copied = false;  // threads bring what the copy engine does not take
}

// Whether blocks share the keys of packed sequences of uneven lengths.
bool shares_uneven_keys(const Bound<Attention>& c, const AttentionKernel& kernel) {
  const std::int64_t columns = problem_of(c, kernel).head_tiles(kernel.pack);
  return c.on_gpu() && kernel.varlen && c->splits == 0 && kernel.type.bits() != 8 &&
         are_uneven(c.dim("keys"), c.dim("sequences"), c.dim("longest_k")) &&
         should_share_keys(c.dim("queries"), c.dim("keys"), c.dim("sequences"), columns, kernel.queries);
}

// What steps over keys cost beside their products.
void note_steps(const AttentionProblem& problem, const AttentionPlan& plan, int splits,
                const AttentionKernel& kernel, Launch& launch) {
  note_scores(kernel.dim, kernel.dim_v, kernel.weight_type(), kernel.softcap, launch);
  note_added_features(kernel.dim, kernel.dim_v, kernel.padded, launch);
  if (problem.packed == 1) note_window(kernel.queries, kernel.keys, problem.seen, problem.keys, launch);
  if (splits > 1) return note_splits(splits, launch);
  if (problem.packed == 1) note_load(load_of_processors(problem, plan), plan, launch);
}

// Without a mask power bounds long calls of 128 features: steps of more keys read the queries less often, for
// 2 % of 8192 keys and more. Of 4096 the last step, half of which is empty, costs more than that.
void widen_steps(const Bound<Attention>& c, const AttentionKernel& kernel, const AttentionProblem& problem,
                 AttentionPlan& plan) {
  constexpr int features = 128, queries = 128, wide = 176;
  constexpr std::int64_t least_keys = 8192;
  const bool is_plain = kernel.type.bits() == 16 && kernel.softcap == ScoreCap::none && !kernel.varlen &&
                        problem.seen >= problem.keys && problem.left < 0 && problem.right < 0,
             is_planned = c->tiles.queries == 0 && c->tiles.keys == 0 && c->splits == 0;
  if (c.on_gpu() && is_plain && is_planned && kernel.dim == features && kernel.dim_v == features &&
      plan.queries == queries && plan.pack == 1 && plan.splits == 1 && problem.keys >= least_keys)
    plan.keys = wide;
}

void note_on_cpu(const AttentionProblem& problem, const AttentionPlan& plan, const AttentionKernel& kernel,
                 Launch& launch) {
  note_scores(kernel.dim, kernel.dim_v, kernel.compute, kernel.softcap, launch);
  note_packed_for_few_rows(std::min<std::int64_t>(problem.queries, plan.queries) * plan.pack, launch);
  if (problem.packed == 1) note_window(plan.queries, plan.keys, problem.seen, problem.keys, launch);
  note_parts_of_tiles(problem, plan, launch);
}

void run(const Bound<Attention>& c, Launch& launch) {
  AttentionKernel kernel = kernel_of(c);
  if (kernel.type.bits() == 8) multiply_8_bits(c, kernel);
  AttentionProblem problem = problem_of(c, kernel);
  problem.as_they_are = kernel.type.bits() == 16;
  AttentionPlan plan = c.on_gpu() ? plan_attention_on_gpu(problem, kernel.weight_type(), c->tiles)
                                  : plan_attention(problem, c->tiles);
  widen_steps(c, kernel, problem, plan);
  round_weights(c->tiles, problem, kernel, plan);
  kernel.queries = plan.queries, kernel.keys = plan.keys, kernel.pack = plan.pack;
  kernel.parted = plan.pack > 1 && plan.pack != problem.group;
  const int splits = c->splits > 0 ? c->splits : plan.splits;
  kernel.shares = shares_uneven_keys(c, kernel);
  kernel.split = splits > 1 || kernel.shares;
  // Blocks of a CPU that have nothing to do take no time.
  kernel.listed = c.on_gpu() && kernel.varlen && !kernel.split &&
                  should_list_tiles(c.dim("queries"), c.dim("sequences"), c.dim("longest_q"), kernel.queries);
  const Tensor owners = kernel.listed
                            ? list_tiles(launch, c.given("cu_seqlens_q"), c.dim("queries"), kernel.queries)
                            : Tensor();
  kernel.padded.copied_keys = c.on_gpu() && reads_keys_often(problem, kernel);
  note_copied_rows(kernel.dim, kernel.dim_v, kernel.padded, launch);
  if (c.on_gpu() && kernel.varlen)
    note_short_sequences(c.dim("keys"), c.dim("sequences"), kernel.keys, launch);
  if (!c.on_gpu()) note_on_cpu(problem, plan, kernel, launch);
  if (c.on_gpu() && problem.queries > kernel.queries) note_steps(problem, plan, splits, kernel, launch);
  const ProgramOptions options = program_options(*c, c.real("scale"));
  launch(kernel, attention_kernel,
         {{"scale", options.scale},
          {"left", options.left},
          {"right", options.right},
          {"cap", c->softcap},
          {"q_begin", c.given("cu_seqlens_q")},
          {"k_begin", c.given("cu_seqlens_k")},
          {"longest", c.dim("longest_q")},
          {"tile_owners", owners},
          {"longest_k", c.dim("longest_k")},
          {"splits", splits}});
}

// A copy in which every head of every sequence is multiplied by its factor.
Tensor scaled(const Bound<Attention>& c, const char* name, const char* packing) {
  const Tensor result = reference::doubles(c[name]);
  const std::string factors = std::string(name) + "_scale";
  if (!c.has(factors)) return result;
  const TensorRef own = c.formed(factors);
  const bool packed = c.has(packing);
  const TensorRef rows = packed
                             ? TensorRef(result.reshape({1, result.size(0), result.size(1), result.size(2)}))
                             : as_bshd(result, c->layout);
  const std::int64_t shared = rows.size(2) / std::max<std::int64_t>(own.size(1), 1);
  const auto sequence = [&](std::int64_t b, std::int64_t token) {
    if (!packed) return b;
    const TensorRef& fences = c[packing];
    while (b + 2 < fences.size(0) && fences.get({b + 1}) <= static_cast<double>(token)) ++b;
    return b;
  };
  for (std::int64_t b = 0; b < rows.size(0); ++b)
    for (std::int64_t i = 0; i < rows.size(1); ++i)
      for (std::int64_t h = 0; h < rows.size(2); ++h) {
        const double factor = own.get({sequence(b, i), h / shared});
        for (std::int64_t j = 0; j < rows.size(3); ++j) rows.at<double>(b, i, h, j) *= factor;
      }
  return result;
}

void formula(const Bound<Attention>& c, Exact& exact) {
  const DType weights = c.type("q").bits() == 8 && exact.steps() != f64 ? c.type("q") : f64;
  const AttentionResult result =
      reference::attention(scaled(c, "q", "cu_seqlens_q"), scaled(c, "k", "cu_seqlens_k"),
                           scaled(c, "v", "cu_seqlens_k"), *c, exact.steps(), weights);
  exact.set("out", result.out);
  exact.set("lse", result.lse);
}

const OptionRule split_rule =
    between(0, most_splits, fmt::format("a number from 1 to {}, or 0 for the plan's choice", most_splits),
            "leave it out");

std::vector<Example> attention_examples() {
  return {
      {"full", "batch=1 queries=9 keys=21 kv_heads=2 group=2 d=16 d_v=12"},
      {"causal_grouped", "batch=2 queries=33 keys=45 kv_heads=2 group=2 d=16 d_v=8 causal layout=bhsd"},
      {"window_sinks_f16",
       "batch=1 queries=40 keys=40 kv_heads=1 group=2 d=24 d_v=24 f16 left=7 right=2 "
       "sinks:f32"},
      {"softcap_bf16", "batch=1 queries=20 keys=64 kv_heads=2 group=1 d=32 d_v=32 bf16 softcap=5 scale=0.3"},
      {"splits",
       "batch=2 queries=3 keys=150 kv_heads=2 group=2 d=32 d_v=16 bf16 splits=4 causal "
       "sinks:f32"},
      {"packed",
       "sequences=3 queries=26 keys=40 kv_heads=1 group=2 d=16 d_v=24 causal cu_seqlens_q "
       "cu_seqlens_k"},
      {"packed_uneven_bf16",
       "sequences=12 queries=600 keys=700 kv_heads=1 group=2 d=64 d_v=64 bf16 causal cu_seqlens_q "
       "cu_seqlens_k "
       "tile_queries=32 tile_keys=64"},
      {"packed_few_queries_bf16",
       "sequences=5 queries=40 keys=3000 kv_heads=2 group=4 d=64 d_v=32 bf16 causal cu_seqlens_q "
       "cu_seqlens_k "
       "sinks:f32"},
      {"wide_steps_bf16",
       "batch=1 queries=200 keys=400 kv_heads=1 group=2 d=128 d_v=128 bf16 tile_queries=128 tile_keys=176"},
      {"odd_strides_bf16",
       "batch=1 queries=70 keys=90 kv_heads=1 group=8 d=32 d_v=16 bf16 causal strides=odd"},
      {"group_of_7_bf16",
       "batch=2 queries=5 keys=300 kv_heads=2 group=7 d=64 d_v=32 bf16 causal sinks:f32 layout=bhsd"},
      {"group_of_71_f16",
       "batch=1 queries=2 keys=130 kv_heads=2 group=71 d=32 d_v=32 f16 left=90 sinks:f32 splits=1"},
      {"packed_group_of_3_bf16",
       "sequences=5 queries=40 keys=700 kv_heads=2 group=3 d=64 d_v=64 bf16 causal cu_seqlens_q cu_seqlens_k "
       "sinks:f32"},
      {"features_576_512_bf16",
       "batch=1 queries=33 keys=70 kv_heads=1 group=2 d=576 d_v=512 bf16 causal strides=sliced"},
      {"e4m3",
       "batch=2 queries=70 keys=90 kv_heads=2 group=2 d=64 d_v=32 e4m3 causal q_scale k_scale "
       "v_scale"},
      {"weights_e4m3",
       "batch=2 queries=140 keys=200 kv_heads=1 group=2 d=64 d_v=40 e4m3 q_scale v_scale "
       "tile_queries=128 tile_keys=64"},
      {"packed_e4m3",
       "sequences=3 queries=70 keys=90 kv_heads=1 group=2 d=64 d_v=40 e4m3 cu_seqlens_q "
       "cu_seqlens_k k_scale v_scale out_dtype=f16 sinks:f32 tile_queries=64 tile_keys=64"}};
}

std::vector<Example> attention_measured() {
  return {
      {"4096", "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64"},
      {"4096_causal", "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64 causal"},
      {"1024_grouped_bf16", "batch=1 queries=1024 keys=1024 kv_heads=2 group=8 d=128 d_v=128 bf16 causal"},
      {"decode", "batch=4 queries=1 keys=4096 kv_heads=4 group=8 d=128 d_v=128"},
      {"decode_bf16", "batch=1 queries=1 keys=32768 kv_heads=8 group=8 d=128 d_v=128 bf16"}};
}

}  // namespace

const OperatorSchema& attention_schema() {
  using Op = Attention;
  static const OperatorSchema table =
      Schema<Op>("attention", "softmax(scale q k^T) v over all keys or a window, with grouped heads")
          .with([](Schema<Op>& own) {
            add_heads_of(own, one_of({f32, f16, bf16, e4m3}));
          })
          .with(add_dense<Op>)
          .with(add_head_scales<Op>)
          .option(&Op::splits, "splits", "splits of the keys of a tile, which are merged; 0: planned",
                  split_rule)
          .option(&Op::out_dtype, "out_dtype", "dtype of the result of e4m3; of others that of q",
                  result_dtype)
          .require(
              "out_dtype",
              [](const Bound<Op>& c) {
                return c.type("q").bits() == 8 || !c->out_dtype || *c->out_dtype == c.type("q");
              },
              "the dtype of q, unless that is e4m3", "convert the result")
          .with([](Schema<Op>& own) {
            add_results_of_types(own, chosen_by("out_dtype", floats.types, "q", bf16));
          })
          .steps_of("q")
          .source(
              "Vaswani et al. 2017, Attention Is All You Need; by tiles as in Dao et al. 2022, "
              "FlashAttention")
          .gradient("attention_backward")
          .flops("2*" + seen_pairs() + "*(d + d_v)")
          .examples(attention_examples())
          .measured(attention_measured())
          // The second is the demonstration, whose queries are patches of 3 x 3 pixels of three colours.
          .built_in(
              {"batch=1 queries=64 keys=64 kv_heads=1 group=1 {d=64 d_v=64|d=128 d_v=128} {f32|f16|bf16} "
               "{|causal} {tile_queries=256 tile_keys=128|tile_queries=64 tile_keys=64}",
               "batch=1 queries=4096 keys=4096 kv_heads=1 group=1 {d=64 d_v=64|d=128 d_v=128} bf16 {|causal}",
               "batch=1 {queries=100 keys=100|queries=512 keys=512} kv_heads=2 group=1 {d=64 d_v=64|d=128 "
               "d_v=128} bf16 {|causal}",
               "batch=1 queries=512 keys=64 kv_heads=1 group=1 d=28 d_v=3 tile_queries=256 "
               "tile_keys=64"})
          .maps(attention_maps())
          .run(on_moved_rows<Op, run, RowsToMove::whole>, formula);
  return table;
}

}  // namespace tegula::ops
