// Attention over selected blocks and its gradients: tables and formulas; examples of calls, and how much work
// they are.
#include <algorithm>
#include <set>

#include "ops/lists/check_indices.hpp"
#include "ops/nsa/backward.hpp"
#include "ops/nsa/table.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

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

Tensor random_selection(const Shape& shape, DType, std::uint64_t seed,
                        const std::function<std::int64_t(const std::string&)>& dim) {
  Tensor indices = Tensor::random_integers(shape, i32, seed, 0, 1 << 30);
  auto* at = indices.data_as<std::int32_t>();
  const bool heads_first = shape.size() == 4 && dim("layout") == 1;
  const std::int64_t entries = shape.back(), inner = heads_first ? 1 : shape[shape.size() - 2],
                     tokens = shape[shape.size() - (heads_first ? 2 : 3)];
  for (std::int64_t i = 0; i < indices.nelements(); ++i) {
    const std::int64_t n = i % entries, token = i / entries / inner % tokens;
    const auto own = static_cast<std::int32_t>(token / dim("block_size"));
    at[i] = n == 0 ? 0 : n == 1 ? own : at[i] % (own + 1);
  }
  return indices;
}

namespace {

// Keys that one query sees at most: those of its distinct blocks up to its position.
double keys_seen(const std::set<std::int64_t>& blocks, std::int64_t block_size, std::int64_t limit) {
  double keys = 0;
  for (std::int64_t block : blocks)
    keys += static_cast<double>(std::clamp<std::int64_t>(limit - block * block_size, 0, block_size));
  return keys;
}

// Counts the pairs of one batch entry or packed sequence: query tokens [begin, end) and `keys` keys. `lists`
// are [tokens, heads, entries].
double pairs_of(const TensorRef& lists, const NsaSelectedOptions& options,
                std::pair<std::int64_t, std::int64_t> tokens, std::int64_t keys) {
  double pairs = 0;
  for (std::int64_t i = tokens.first; i < tokens.second; ++i) {
    const std::int64_t position = i - tokens.second + keys,
                       limit = options.causal ? std::clamp<std::int64_t>(position + 1, 0, keys) : keys;
    for (std::int64_t h = 0; h < lists.size(1); ++h) {
      std::set<std::int64_t> blocks;
      for (std::int64_t n = 0; n < lists.size(2); ++n) {
        const auto block = static_cast<std::int64_t>(lists.get({i, h, n}));
        if (block >= 0) blocks.insert(block);
      }
      if (options.diagonal && position >= 0) blocks.insert(position / options.block_size);
      pairs += keys_seen(blocks, options.block_size, limit);
    }
  }
  return pairs;
}

}  // namespace

double selected_pairs(const BoundCall& bound, const NsaSelectedOptions& options) {
  const TensorRef lists = bound.formed("block_indices");
  double pairs = 0;
  if (bound.has("cu_seqlens_q")) {
    const TensorRef &q = bound["cu_seqlens_q"], &k = bound["cu_seqlens_k"];
    const auto at = [](const TensorRef& fences, std::int64_t i) {
      return static_cast<std::int64_t>(fences.get({i}));
    };
    for (std::int64_t b = 0; b < bound.dim("sequences"); ++b)
      pairs += pairs_of(lists, options, {at(q, b), at(q, b + 1)}, at(k, b + 1) - at(k, b));
  } else {
    for (std::int64_t b = 0; b < bound.dim("batch"); ++b)
      pairs += pairs_of(lists.select(0, b), options, {0, bound.dim("queries")}, bound.dim("keys"));
  }
  const double heads = static_cast<double>(bound.dim("heads")),
               rows = static_cast<double>(bound.dim("batch") * bound.dim("queries")) * heads,
               window = static_cast<double>(std::min(options.window, bound.dim("keys")));
  return pairs * heads / static_cast<double>(std::max<std::int64_t>(bound.dim("selecting"), 1)) +
         rows * window;
}

namespace {

std::vector<Example> examples_of_selection() {
  return {{"small",
           "batch=1 queries=9 keys=11 kv_heads=1 group=2 d=8 d_v=4 selecting=1 entries=2 block_size=4 "
           "window=3"},
          {"grouped_window",
           "batch=1 queries=40 keys=40 kv_heads=2 group=4 d=16 d_v=16 f32 selecting=2 "
           "entries=3 block_size=8 window=9"},
          {"odd_strides_bf16",
           "batch=1 queries=40 keys=40 kv_heads=2 group=4 d=64 d_v=32 bf16 selecting=2 entries=3 "
           "block_size=16 strides=odd"},
          {"counts_diagonal_f16",
           "batch=2 queries=33 keys=33 kv_heads=1 group=2 d=16 d_v=16 f16 selecting=1 "
           "entries=2 block_size=16 block_counts diagonal"},
          {"repeats_group_of_3_bf16",
           "batch=1 queries=150 keys=150 kv_heads=2 group=3 d=64 d_v=64 bf16 selecting=2 "
           "entries=5 block_size=32 repeats"},
          {"features_192_128_bf16",
           "batch=1 queries=90 keys=90 kv_heads=2 group=4 d=192 d_v=128 bf16 selecting=2 "
           "entries=3 block_size=32 window=20"},
          {"features_96_f16",
           "batch=1 queries=80 keys=80 kv_heads=2 group=2 d=96 d_v=96 f16 selecting=2 "
           "entries=3 block_size=16 diagonal"},
          {"packed",
           "sequences=3 queries=50 keys=60 kv_heads=1 group=2 d=16 d_v=24 selecting=1 entries=3 "
           "block_size=8 cu_seqlens_q cu_seqlens_k diagonal"},
          {"features_256_bf16",
           "batch=1 queries=70 keys=70 kv_heads=1 group=4 d=256 d_v=256 bf16 selecting=1 "
           "entries=3 block_size=32"},
          {"long_group_of_16_bf16",
           "batch=1 queries=200 keys=200 kv_heads=1 group=16 d=128 d_v=128 bf16 selecting=1 "
           "entries=4 block_size=64"}};
}

std::vector<Example> measured_selection() {
  return {{"4096_grouped_16",
           "batch=1 queries=4096 keys=4096 kv_heads=1 group=16 d=128 d_v=128 f32 selecting=1 "
           "entries=16 block_size=64"},
          {"4096_grouped_4",
           "batch=1 queries=4096 keys=4096 kv_heads=4 group=4 d=128 d_v=128 f32 selecting=4 "
           "entries=16 block_size=64"},
          {"4096_alone",
           "batch=1 queries=4096 keys=4096 kv_heads=4 group=1 d=64 d_v=64 f32 selecting=4 "
           "entries=16 block_size=64"}};
}

std::vector<CallMap> maps_of_selection() {
  const std::string base =
      "batch=1 queries=4096 keys=4096 kv_heads=1 selecting=1 group=16 d=128 d_v=128 bf16 entries=16 "
      "block_size=64";
  // About as many keys in all.
  const std::vector<std::string> blocks{"block_size=16 entries=64", "block_size=32 entries=32",
                                        "block_size=48 entries=21", "block_size=64",
                                        "block_size=128 entries=8"},
      alone{"", "causal=false", "window=512", "diagonal", "block_counts", "scale=0.1", "layout=bhsd"};
  return {{"features",
           base,
           {"d=64 d_v=64", "d=96 d_v=96", "d=128 d_v=128", "d=192 d_v=128", "d=192 d_v=192", "d=256 d_v=256"},
           blocks},
          {"groups",
           base,
           {"kv_heads=16 selecting=16 group=1", "kv_heads=8 selecting=8 group=2",
            "kv_heads=4 selecting=4 group=4", "kv_heads=2 selecting=2 group=8", "group=16", "group=32",
            "group=64"},
           blocks},
          {"lengths",
           base,
           {"queries=1000 keys=1000", "queries=2048 keys=2048", "queries=4095 keys=4095",
            "queries=4096 keys=4096", "queries=4097 keys=4097", "queries=8192 keys=8192"},
           blocks},
          {"strides",
           base,
           {"strides=plain", "strides=sliced", "strides=padded", "strides=odd", "strides=swapped"},
           {"", "layout=bhsd", "d=192 d_v=128", "kv_heads=4 selecting=4 group=4"}},
          {"options", base, alone, alone},
          {"types", base, {"bf16", "f16", "f32"}, {"", "d=64 d_v=64", "kv_heads=4 selecting=4 group=4"}}};
}

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

// Adds examples with tiles of three warp groups.
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

void run(const Bound<NsaSelectedBackward>& c, Launch& launch) {
  run_nsa_backward(nsa_backward_call(c), launch);
}

// The results of the forward are formed anew.
void formula(const Bound<NsaSelectedBackward>& c, Exact& exact) {
  const NsaSelectedGradients gradients = reference::nsa_selected_attention_backward(
      c["dout"], c["q"], c["k"], c["v"], c["block_indices"], *c, *c, exact.steps());
  exact.set("dq", gradients.dq);
  exact.set("dk", gradients.dk);
  exact.set("dv", gradients.dv);
  if (c.has("dsel_scale")) exact.set("dsel_scale", gradients.dsel_scale);
}

// Gradients of scores, dq, dk and dv for every pair that the forward has, at least.
double backward_operations(const Bound<NsaSelectedBackward>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(3 * c.dim("d") + 2 * c.dim("d_v"));
}

// All gradients there are; then nothing but dq, dk and dv, which GPUs find in a way of their own.
std::vector<Example> backward_examples() {
  std::vector<Example> all = examples_of_selection();
  const Example plain = all.back();
  for (Example& example : all) {
    example.text += " dlse sel_scale_gradient";
    if (example.text.find("window=") != std::string::npos)
      example.text += " dwindow_out window_out window_lse";
  }
  all.push_back({plain.name + "_plain", plain.text});
  return all;
}

}  // namespace

const OperatorSchema& nsa_selected_attention_schema() {
  using Op = NsaSelected;
  static const OperatorSchema table =
      Schema<Op>("nsa_selected_attention",
                 "attention in which every token sees selected blocks of keys and, optionally, a window")
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_selection<Op>)
          .option(&Op::check_indices, "check_indices",
                  "refuses used entries that are neither -1 nor a block; the call then waits for the GPU")
          .with(add_attention_results<Op>)
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
          .examples(with_tiles(examples_of_selection()))
          .measured(measured_selection())
          .maps(maps_of_selection())
          .run(on_moved_rows<Op, run>, formula);
  return table;
}

const OperatorSchema& nsa_selected_attention_backward_schema() {
  using Op = NsaSelectedBackward;
  const char* of_forward = "give the window and the results of the forward";
  static const OperatorSchema table =
      Schema<Op>("nsa_selected_attention_backward",
                 "gradients of nsa_selected_attention, of its window too, and of a scale of every selection")
          .with(add_gradient_of_out<Op>)
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_results_of<Op>("the result of nsa_selected_attention"))
          .in(&Op::dwindow_out, "dwindow_out", out_dims, same_as("q"),
              "gradient of window_out; if omitted, the window contributes nothing to the gradients")
          .unit_stride()
          .ordered()
          .in(&Op::window_out, "window_out", out_dims, same_as("q"), "the window's result")
          .unit_stride()
          .ordered()
          .in(&Op::window_lse, "window_lse", lse_dims, is(f32), "the lse of that result")
          .in(&Op::dwindow_lse, "dwindow_lse", lse_dims, is(f32), "gradient of window_lse")
          .with(add_selection<Op>)
          .option(&Op::sel_scale_gradient, "sel_scale_gradient",
                  "also the gradient of sel_scale, which need not be given")
          .require("dwindow_out", "dwindow_out ? window > 0 : 1", "a window in the options", of_forward)
          .require("dwindow_out", "dwindow_out ? window_out & window_lse : 1",
                   "window_out and window_lse with it", of_forward)
          .require("dwindow_lse", "dwindow_lse <= dwindow_out", "dwindow_out with it",
                   "give dwindow_out, of zeros if necessary")
          .with(add_room_for_entries<Op>)
          .with(add_gradients<Op>)
          .with(add_gradient_of_scale<Op>)
          .source(
              "Dao 2023, FlashAttention-2, over lists that are inverted on the device; the gradient of "
              "factors as in native-sparse-attention-pytorch (Wang 2025)")
          .no_gradient("those of gradients are not implemented")
          .flops(fmt::format("2*{}*(3*d + 2*d_v)", most_pairs_of_selection))
          .counted(backward_operations)
          .examples(backward_examples())
          .measured(measured_selection())
          .maps(maps_of_selection())
          .run(on_moved_rows<Op, run>, formula);
  return table;
}

}  // namespace tegula::ops
