#include <algorithm>

#include "ops/attention/attention.hpp"
#include "ops/attention/backward_kernel.hpp"
#include "ops/attention/backward_plan.hpp"
#include "ops/attention/maps.hpp"
#include "ops/attention/notes.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

namespace {

BackwardMask mask_of(const AttentionKernel& forward) {
  if (forward.varlen) return BackwardMask::packed;
  if (forward.left) return BackwardMask::window;
  return forward.right ? BackwardMask::causal : BackwardMask::none;
}

AttentionBackwardKernel plan(const Bound<AttentionBackward>& c) {
  AttentionKernel forward = kernel_of(c);
  forward.padded = c.on_gpu() ? gradient_features(forward.dim, forward.dim_v, forward.compute)
                              : tile_features(forward.dim, forward.dim_v, forward.compute);
  const BackwardTraits traits{mask_of(forward), forward.softcap != ScoreCap::none, c->deterministic,
                              target_for(c.target(), c.device()) != Target::cuda_sm80(),
                              std::max(forward.dim, forward.dim_v)};
  if (c.on_gpu() && pads_to_one_pass(problem_of(c, forward), forward.compute, c->tiles, traits))
    forward.padded.dim = forward.padded.dim_v = features_of_one_pass;
  const AttentionProblem problem = problem_of(c, forward);
  const BackwardPlan plan = c.on_gpu()
                                ? plan_attention_backward_on_gpu(problem, forward.compute, c->tiles, traits)
                                : plan_attention_backward_on_cpu(problem, c->tiles, traits);
  return {.type = forward.type,
          .compute = forward.compute,
          .dim = forward.dim,
          .dim_v = forward.dim_v,
          .padded = forward.padded,
          .pack = plan.tiles.pack,
          .queries = plan.tiles.queries,
          .keys = plan.tiles.keys,
          .step = plan.step,
          .splits = plan.splits,
          .row_splits = plan.row_splits,
          .left = forward.left,
          .right = forward.right,
          .softcap = forward.softcap,
          .varlen = forward.varlen,
          .sinks = forward.sinks,
          .dlse = c.has("dlse"),
          .one_pass = plan.one_pass,
          .alone = plan.alone,
          .ordered = plan.ordered,
          .late = plan.late,
          .shares = plan.shares,
          .rows_first = plan.rows_first};
}

// Blocks of keys see the queries of a window and those beside it that their tiles hold.
void note_bounds(const Bound<AttentionBackward>& c, const AttentionBackwardKernel& kernel, Launch& launch) {
  note_copied_rows(kernel.dim, kernel.dim_v, kernel.padded, launch);
  if (!c.on_gpu()) return;
  note_scores(kernel.dim, kernel.dim_v, kernel.compute, kernel.softcap, launch);
  note_added_features(kernel.dim, kernel.dim_v, kernel.padded, launch);
  const AttentionProblem p = problem_of(c, kernel_of(c));
  if (kernel.varlen) note_short_sequences(c.dim("keys"), c.dim("sequences"), kernel.keys, launch);
  if (p.packed > 1) return;
  if (kernel.pack == 1) note_heads_in_turn(c.dim("group"), p.queries, kernel.queries, launch);
  const AttentionPlan tiles{kernel.queries, kernel.keys, kernel.pack};
  note_window(kernel.queries, kernel.keys, p.seen, p.keys, launch);
  if (kernel.ordered && kernel.right && !kernel.left) note_turns(p.queries, p.keys, kernel.keys, launch);
  // Of two passes that over queries has a block for each of their tiles.
  const ProcessorLoad load = load_of_processors(p, tiles);
  note_load(kernel.one_pass ? ProcessorLoad{load.steps} : load, tiles, launch);
}

void run(const Bound<AttentionBackward>& c, Launch& launch) {
  const ProgramOptions options = program_options(*c, c.real("scale"));
  AttentionBackwardKernel kernel = plan(c);
  kernel.listed =
      c.on_gpu() && kernel.varlen &&
      (should_list_tiles(c.dim("queries"), c.dim("sequences"), c.dim("longest_q"), kernel.queries) ||
       should_list_tiles(c.dim("keys"), c.dim("sequences"), c.dim("longest_k"), kernel.keys));
  note_bounds(c, kernel, launch);
  const auto owners = [&](bool exists, const char* fences, const char* tokens, int rows) {
    return exists ? list_tiles(launch, c.given(fences), c.dim(tokens), rows) : Tensor();
  };
  const Tensor q_owners =
                   owners(kernel.listed && !kernel.one_pass, "cu_seqlens_q", "queries", kernel.queries),
               k_owners = owners(kernel.listed, "cu_seqlens_k", "keys", kernel.keys);
  launch(kernel, attention_backward_kernel,
         {{"scale", options.scale},
          {"left", options.left},
          {"right", options.right},
          {"cap", c->softcap},
          {"q_begin", c.given("cu_seqlens_q")},
          {"k_begin", c.given("cu_seqlens_k")},
          {"longest_q", c.dim("longest_q")},
          {"longest_k", c.dim("longest_k")},
          {"q_tile_owners", q_owners},
          {"k_tile_owners", k_owners}});
}

// The results of the forward are formed anew.
void formula(const Bound<AttentionBackward>& c, Exact& exact) {
  const AttentionGradients gradients =
      reference::attention_backward(c["dout"], c["q"], c["k"], c["v"], *c, c->dlse, exact.steps());
  exact.set("dq", gradients.dq);
  exact.set("dk", gradients.dk);
  exact.set("dv", gradients.dv);
  if (c.has("sinks")) exact.set("dsinks", gradients.dsinks);
}

std::vector<Example> backward_examples() {
  return {
      {"full", "batch=1 queries=9 keys=13 kv_heads=2 group=2 d=16 d_v=8 dlse"},
      {"causal_grouped", "batch=2 queries=17 keys=21 kv_heads=2 group=2 d=16 d_v=8 causal layout=bhsd dlse"},
      {"window_sinks_f16",
       "batch=1 queries=24 keys=24 kv_heads=1 group=2 d=16 d_v=16 f16 left=7 right=2 sinks:f32 "
       "dlse"},
      {"softcap_bf16",
       "batch=1 queries=10 keys=40 kv_heads=2 group=1 d=16 d_v=16 bf16 softcap=5 scale=0.3 dlse"},
      {"packed",
       "sequences=3 queries=26 keys=40 kv_heads=1 group=2 d=16 d_v=24 causal cu_seqlens_q "
       "cu_seqlens_k dlse"},
      {"packed_uneven_bf16",
       "sequences=12 queries=500 keys=600 kv_heads=1 group=2 d=64 d_v=64 bf16 causal cu_seqlens_q "
       "cu_seqlens_k tile_queries=64 tile_keys=64"},
      {"causal_bf16", "batch=1 queries=150 keys=200 kv_heads=2 group=2 d=64 d_v=32 bf16 causal dlse"},
      {"causal_group_of_3_bf16", "batch=1 queries=300 keys=290 kv_heads=1 group=3 d=64 d_v=64 bf16 causal"},
      {"causal_group_of_5_bf16", "batch=1 queries=70 keys=290 kv_heads=1 group=5 d=64 d_v=64 bf16 causal"},
      {"odd_strides_bf16",
       "batch=1 queries=70 keys=90 kv_heads=1 group=8 d=32 d_v=16 bf16 causal strides=odd"},
      {"features_576_512_bf16",
       "batch=1 queries=33 keys=70 kv_heads=1 group=2 d=576 d_v=512 bf16 causal strides=sliced"},
      {"any_order_bf16",
       "batch=1 queries=150 keys=200 kv_heads=2 group=2 d=64 d_v=32 bf16 causal deterministic=false "
       "dlse"},
      {"one_block_of_keys_bf16", "batch=3 queries=200 keys=77 kv_heads=2 group=3 d=64 d_v=64 bf16 dlse"},
      {"one_block_causal_f16",
       "batch=2 queries=70 keys=100 kv_heads=1 group=2 d=128 d_v=128 f16 causal left=30"},
      {"features_72_bf16", "batch=1 queries=150 keys=140 kv_heads=2 group=1 d=72 d_v=72 bf16 causal"},
      {"few_keys_bf16", "batch=1 queries=900 keys=130 kv_heads=1 group=2 d=128 d_v=64 bf16 dlse"},
      {"features_192_128_bf16",
       "batch=1 queries=90 keys=110 kv_heads=1 group=2 d=192 d_v=128 bf16 causal dlse"},
      {"features_160_136_of_many_heads_bf16",
       "batch=17 queries=30 keys=40 kv_heads=4 group=1 d=160 d_v=136 bf16 causal"},
      {"features_256_grouped_bf16",
       "batch=1 queries=67 keys=77 kv_heads=1 group=4 d=256 d_v=256 bf16 causal dlse"},
      {"features_128_bf16", "batch=1 queries=210 keys=150 kv_heads=2 group=2 d=128 d_v=128 bf16 dlse"},
      {"features_128_any_order_f16",
       "batch=1 queries=210 keys=150 kv_heads=2 group=1 d=128 d_v=64 f16 causal deterministic=false "
       "dlse"},
      {"wide_f16",
       "batch=1 queries=130 keys=140 kv_heads=2 group=1 d=128 d_v=128 f16 left=90 "
       "deterministic=false dlse"},
      {"window_in_turn_bf16",
       "batch=1 queries=400 keys=300 kv_heads=1 group=2 d=64 d_v=64 bf16 left=100 right=3 dlse"}};
}

}  // namespace

const OperatorSchema& attention_backward_schema() {
  using Op = AttentionBackward;
  static const OperatorSchema table =
      Schema<Op>("attention_backward", "gradients of attention with respect to q, k, v and the sinks")
          .with(add_gradient_of_out<Op>)
          .with(add_heads<Op>)
          .with(add_results_of<Op>("the result of attention"))
          .with(add_dense<Op>)
          .with(add_deterministic<Op>)
          .with(add_gradients<Op>)
          .out(&Op::dsinks, "dsinks", query_heads, is(f32), "gradient of the sinks")
          .steps_of("q")
          .when("sinks")
          .source("Dao 2023, FlashAttention-2")
          .no_gradient("those of gradients are not implemented")
          .flops("2*" + seen_pairs() + "*(3*d + 2*d_v)")
          .examples(backward_examples())
          .measured({{"2048", "batch=1 queries=2048 keys=2048 kv_heads=8 group=1 d=64 d_v=64"},
                     {"2048_causal", "batch=1 queries=2048 keys=2048 kv_heads=8 group=1 d=64 d_v=64 causal"},
                     {"1024_grouped_bf16",
                      "batch=1 queries=1024 keys=1024 kv_heads=2 group=8 d=128 d_v=128 bf16 causal"}})
          .maps(attention_maps({"dlse", "deterministic=false"}))
          .run(on_moved_rows<Op, run, RowsToMove::whole>, formula);
  return table;
}

}  // namespace tegula::ops
