// Attention over selected blocks: its table and its formula.
#include "ops/lists/check_indices.hpp"
#include "ops/nsa/table.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

namespace {

void check(const Bound<NsaSelected>& c, const NsaCall& call, Launch& launch) {
  if (!c->check_indices) return;
  IndexCheck check{"block_indices", c.formed("block_indices")};
  if (c.has("block_counts")) check.counts = c.formed("block_counts");
  check.block = c->block_size, check.keys = c.dim("keys");
  check.q_begin = call.q_begin, check.k_begin = call.k_begin, check.longest = call.longest;
  check.heads_first = c->layout == Layout::bhsd;
  check_indices(check, launch);
}

void run(const Bound<NsaSelected>& c, Launch& launch) {
  const NsaCall call = nsa_call(c.call(), *c, c.on_gpu());
  check(c, call, launch);
  if (c.has("window_out") && launch.runs()) {
    AttentionOptions window = window_options(*c);
    window.out = c["window_out"], window.lse = c["window_lse"];
    attention(c["q"], c["k"], c["v"], window);
  }
  attend_nsa(call, launch);
}

void formula(const Bound<NsaSelected>& c, Exact& exact) {
  const NsaSelectedResult result =
      reference::nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], *c, exact.steps());
  exact.set("out", result.out);
  exact.set("lse", result.lse);
  if (!c.has("window_out")) return;
  exact.set("window_out", result.window_out);
  exact.set("window_lse", result.window_lse);
}

// Also tiles of three warp groups.
std::vector<Example> with_tiles(std::vector<Example> examples) {
  examples.push_back({"three_warp_groups_bf16",
                      "batch=1 queries=130 keys=130 kv_heads=1 group=16 d=128 d_v=128 bf16 selecting=1 "
                      "entries=4 block_size=64 tile_queries=12"});
  examples.push_back({"three_warp_groups_of_4_f16",
                      "batch=1 queries=100 keys=100 kv_heads=1 group=4 d=64 d_v=64 f16 selecting=1 "
                      "entries=5 block_size=64 block_counts tile_queries=48 diagonal"});
  return examples;
}

double operations(const Bound<NsaSelected>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(c.dim("d") + c.dim("d_v"));
}

}  // namespace

AttentionOptions window_options(const NsaSelectedOptions& options) {
  AttentionOptions window;
  window.layout = options.layout;
  window.scale = options.scale;
  window.causal = true;
  window.left = options.window - 1;
  window.cu_seqlens_q = options.cu_seqlens_q, window.cu_seqlens_k = options.cu_seqlens_k;
  window.max_seqlen_q = options.max_seqlen_q, window.max_seqlen_k = options.max_seqlen_k;
  window.target = options.target;
  return window;
}

const OperatorSchema& nsa_selected_attention_schema() {
  using Op = NsaSelected;
  static const OperatorSchema table =
      Schema<Op>("nsa_selected_attention",
                 "attention in which every token sees selected blocks of keys, and a window beside it")
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_selection<Op>)
          .option(&Op::check_indices, "check_indices",
                  "refuse entries that count and are neither -1 nor a block; a GPU is waited for")
          .out(&Op::out, "out", out_dims, same_as("q"), "the weighted sums of values; 0 where no key is seen")
          .unit_stride()
          .ordered()
          .out(&Op::lse, "lse", lse_dims, is(f32),
               "natural logarithm of the sum of exp(score); -inf where no key is seen")
          .out(&Op::window_out, "window_out", out_dims, same_as("q"), "the same of the window")
          .unit_stride()
          .ordered()
          .when("window > 0")
          .out(&Op::window_lse, "window_lse", lse_dims, is(f32), "the same of the window")
          .when("window > 0")
          .source("Yuan et al. 2025, Native Sparse Attention: the selected branch, and its sliding window")
          .gradient("nsa_selected_attention_backward")
          .flops(fmt::format("2*{}*(d + d_v)", most_pairs_of_selection))
          .counted(operations)
          .examples(with_tiles(nsa_examples()))
          .measured(nsa_measured())
          .run(run, formula);
  return table;
}

NsaSelectedResult nsa_selected_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& block_indices, const NsaSelectedOptions& options) {
  const NsaSelected op{options, q, k, v, block_indices};
  const BoundCall call = run_call(nsa_selected_attention_schema(), &op);
  return {call.output("out"), call.output("lse"), call.output("window_out"), call.output("window_lse")};
}

}  // namespace tegula::ops
