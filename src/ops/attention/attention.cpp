#include "ops/attention/attention.hpp"

#include <algorithm>

#include "ops/attention/maps.hpp"
#include "ops/pieces/splits.hpp"
#include "ops/reference/reference.hpp"

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

// Of the keys before `x` of a sequence that begins at 0 there are `below(x)` in all rows up to x, so that
// rows that see the keys before i + x are below(queries + x) − below(x) pairs.
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

// Then rows off the sectors are worth a copy: each block of queries reads them.
bool reads_keys_often(const AttentionProblem& problem, const AttentionKernel& kernel) {
  constexpr std::int64_t blocks = 8;
  const bool off = are_off_sectors(kernel.dim) || are_off_sectors(kernel.dim_v);
  return kernel.compute.bits() == 16 && off && !kernel.padded.copied &&
         problem.queries * problem.group >= blocks * kernel.queries * kernel.pack;
}

void run(const Bound<Attention>& c, Launch& launch) {
  AttentionKernel kernel = kernel_of(c);
  const AttentionProblem problem = problem_of(c, kernel);
  const AttentionPlan plan = c.on_gpu() ? plan_attention_on_gpu(problem, kernel.compute, c->tiles)
                                        : plan_attention(problem, c->tiles);
  kernel.queries = plan.queries, kernel.keys = plan.keys, kernel.pack = plan.pack;
  const int splits = c->splits > 0 ? c->splits : plan.splits;
  kernel.split = splits > 1;
  kernel.padded.copied_keys = c.on_gpu() && reads_keys_often(problem, kernel);
  const ProgramOptions options = program_options(*c, c.real("scale"));
  launch(kernel, attention_kernel,
         {{"scale", options.scale},
          {"left", options.left},
          {"right", options.right},
          {"cap", c->softcap},
          {"q_begin", c.given("cu_seqlens_q")},
          {"k_begin", c.given("cu_seqlens_k")},
          {"longest", c.dim("longest_q")},
          {"splits", splits}});
}

void formula(const Bound<Attention>& c, Exact& exact) {
  const AttentionResult result = reference::attention(c["q"], c["k"], c["v"], *c, exact.steps());
  exact.set("out", result.out);
  exact.set("lse", result.lse);
}

const OptionRule parts =
    between(0, most_splits, fmt::format("a number from 1 to {}, or 0 for the plan's choice", most_splits),
            "leave it out");

}  // namespace

const OperatorSchema& attention_schema() {
  using Op = Attention;
  static const OperatorSchema table =
      Schema<Op>("attention", "softmax(scale q k^T) v over all keys or a window, with grouped heads")
          .with(add_heads<Op>)
          .with(add_dense<Op>)
          .option(&Op::splits, "splits",
                  "parts into which the keys of a tile are split, merged afterwards; 0: planned", parts)
          .out(&Op::out, "out", out_dims, same_as("q"), "the weighted sums of values; 0 where no key is seen")
          .unit_stride()
          .ordered()
          .out(&Op::lse, "lse", lse_dims, is(f32),
               "natural logarithm of the sum of exp(score); -inf where no key is seen")
          .steps_of("q")
          .source(
              "Vaswani et al. 2017, Attention Is All You Need; by tiles as in Dao et al. 2022, "
              "FlashAttention")
          .gradient("attention_backward")
          .flops("2*" + seen_pairs() + "*(d + d_v)")
          .examples({{"full", "batch=1 queries=9 keys=21 kv_heads=2 group=2 d=16 d_v=12"},
                     {"causal_grouped",
                      "batch=2 queries=33 keys=45 kv_heads=2 group=2 d=16 d_v=8 causal layout=bhsd"},
                     {"window_sinks_f16",
                      "batch=1 queries=40 keys=40 kv_heads=1 group=2 d=24 d_v=24 f16 left=7 right=2 "
                      "sinks:f32"},
                     {"softcap_bf16",
                      "batch=1 queries=20 keys=64 kv_heads=2 group=1 d=32 d_v=32 bf16 softcap=5 scale=0.3"},
                     {"splits",
                      "batch=2 queries=3 keys=150 kv_heads=2 group=2 d=32 d_v=16 bf16 splits=4 causal "
                      "sinks:f32"},
                     {"packed",
                      "sequences=3 queries=26 keys=40 kv_heads=1 group=2 d=16 d_v=24 causal cu_seqlens_q "
                      "cu_seqlens_k"}})
          .measured({{"4096", "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64"},
                     {"4096_causal", "batch=1 queries=4096 keys=4096 kv_heads=8 group=1 d=64 d_v=64 causal"},
                     {"1024_grouped_bf16",
                      "batch=1 queries=1024 keys=1024 kv_heads=2 group=8 d=128 d_v=128 bf16 causal"},
                     {"decode", "batch=4 queries=1 keys=4096 kv_heads=4 group=8 d=128 d_v=128"},
                     {"decode_bf16", "batch=1 queries=1 keys=32768 kv_heads=8 group=8 d=128 d_v=128 bf16"}})
          // The second is the demonstration, whose queries are patches of 3 x 3 pixels of three colours.
          .built_in(
              {"batch=1 queries=64 keys=64 kv_heads=1 group=1 {d=64 d_v=64|d=128 d_v=128} {f32|f16|bf16} "
               "{|causal} {tile_queries=256 tile_keys=128|tile_queries=64 tile_keys=64}",
               "batch=1 queries=512 keys=64 kv_heads=1 group=1 d=28 d_v=3 tile_queries=256 "
               "tile_keys=64"})
          .maps(attention_maps())
          .run(run, formula);
  return table;
}

AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options) {
  return results_of<AttentionResult>(attention_schema(), Attention{options}, {q, k, v});
}

}  // namespace tegula::ops
