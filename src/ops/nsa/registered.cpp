#include "ops/registered.hpp"

#include <algorithm>
#include <set>

#include "ops/common/functions.hpp"
#include "ops/nsa/call.hpp"
#include "ops/nsa/options.hpp"
#include "ops/nsa/rest.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

NsaSelectedOptions nsa_options(const Tensors& inputs, const Options& options, Target target) {
  NsaSelectedOptions result;
  result.layout = options.text("layout") == "bshd" ? Layout::bshd : Layout::bhsd;
  result.block_size = options.small_integer("block_size");
  result.block_counts = optional_ref(inputs, "block_counts");
  result.causal = options.boolean("causal");
  result.diagonal = options.boolean("diagonal");
  result.repeats = options.boolean("repeats");
  result.window = options.integer("window");
  result.check_indices = options.boolean("check_indices");
  result.scale = optional_real(options, "scale");
  result.cu_seqlens_q = optional_ref(inputs, "cu_seqlens_q");
  result.cu_seqlens_k = optional_ref(inputs, "cu_seqlens_k");
  result.tiles = {options.small_integer("tile_queries"), options.small_integer("tile_keys")};
  result.target = target;
  return result;
}

namespace {

NsaCall prepared(const Tensors& in, const Options& options, Target target = Target::automatic()) {
  const Tensor& q = required(in, "q");
  return prepare_nsa(q, required(in, "k"), required(in, "v"), required(in, "block_indices"),
                     nsa_options(in, options, target), runs_on_gpu(target, q.device()));
}

// Keys that one query sees at most: those of its distinct blocks up to its position.
double keys_seen(const std::set<std::int64_t>& blocks, std::int64_t block_size, std::int64_t limit) {
  double keys = 0;
  for (std::int64_t block : blocks)
    keys += static_cast<double>(std::clamp<std::int64_t>(limit - block * block_size, 0, block_size));
  return keys;
}

// Of one batch or of packed sequences: tokens [begin, end) of the queries meet `keys` keys.
double pairs_of(const NsaCall& call, std::int64_t batch, std::pair<std::int64_t, std::int64_t> tokens,
                std::int64_t keys) {
  const NsaKernel& kernel = call.kernel;
  const TensorRef choice = kernel.varlen ? call.choice : call.choice.select(0, batch);
  double pairs = 0;
  for (std::int64_t i = tokens.first; i < tokens.second; ++i) {
    const std::int64_t position = i - tokens.second + keys,
                       limit = kernel.causal ? std::clamp<std::int64_t>(position + 1, 0, keys) : keys;
    for (std::int64_t h = 0; h < choice.size(1); ++h)
      for (std::int64_t g = 0; g < choice.size(2); ++g) {
        std::set<std::int64_t> blocks;
        for (std::int64_t n = 0; n < choice.size(3); ++n) {
          const auto block = static_cast<std::int64_t>(choice.get({i, h, g, n}));
          if (block >= 0) blocks.insert(block);
        }
        if (kernel.diagonal && position >= 0) blocks.insert(position / kernel.block);
        pairs += keys_seen(blocks, kernel.block, limit);
      }
  }
  return pairs;
}

Work work_of(const Tensors& in, const Options& options) {
  const NsaCall call = prepared(in, options);
  const HeadTensors& t = call.tensors;
  double pairs = 0;
  if (call.kernel.varlen) {
    const auto q = required(in, "cu_seqlens_q").values<std::int32_t>();
    const auto k = required(in, "cu_seqlens_k").values<std::int32_t>();
    for (std::size_t b = 0; b + 1 < q.size(); ++b)
      pairs += pairs_of(call, 0, {q[b], q[b + 1]}, k[b + 1] - k[b]);
  } else {
    for (std::int64_t b = 0; b < t.q.size(0); ++b) pairs += pairs_of(call, b, {0, t.q.size(1)}, t.k.size(1));
  }
  const double rows = static_cast<double>(nelements(t.q)) / t.dim(),
               window = rows * static_cast<double>(std::min(options.integer("window"), t.k.size(-3)));
  const double outputs = options.integer("window") > 0 ? 2 : 1;
  return {2 * (pairs + window) * (t.dim() + t.dim_v()),
          bytes_of(in) + outputs * rows * (t.dim_v() * t.q.dtype.bytes() + 4)};
}

struct Sizes {
  std::int64_t batch = 1, tokens = 1, heads = 1, kv_heads = 1, dim = 64, entries = 16;
  int block = 64;
  std::int64_t dim_v = 0;  // 0: as dim

  std::int64_t of_values() const { return dim_v > 0 ? dim_v : dim; }
};

// Past blocks, drawn for each token by itself, among them the first and the one of the token.
Tensor random_selection(Sizes s, std::uint64_t seed) {
  Tensor indices = Tensor::random_integers({s.batch, s.tokens, s.kv_heads, s.entries}, i32, seed, 0, 1 << 30);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.kv_heads; ++h)
        for (std::int64_t n = 0; n < s.entries; ++n) {
          const auto own = static_cast<std::int32_t>(t / s.block);
          std::int32_t& entry = indices.at<std::int32_t>(b, t, h, n);
          entry = n == 0 ? 0 : n == 1 ? own : entry % (own + 1);
        }
  return indices;
}

Case example(const std::string& name, Sizes s, DType type, OptionTexts options = {}, bool counts = false) {
  options["block_size"] = std::to_string(s.block);
  return {name, std::move(options), [=](std::uint64_t seed) {
            Tensors in{
                {"q", Tensor::random_normal({s.batch, s.tokens, s.heads, s.dim}, type, seed)},
                {"k", Tensor::random_normal({s.batch, s.tokens, s.kv_heads, s.dim}, type, seed + 1)},
                {"v", Tensor::random_normal({s.batch, s.tokens, s.kv_heads, s.of_values()}, type, seed + 2)},
                {"block_indices", random_selection(s, seed + 3)}};
            if (counts)
              in.emplace("block_counts", Tensor::random_integers({s.batch, s.tokens, s.kv_heads}, i32,
                                                                 seed + 4, 0, s.entries + 1));
            return in;
          }};
}

void describe_nsa(Operator& op) {
  op.name = "nsa_selected_attention";
  op.summary = "attention in which every token sees selected blocks of keys, and a window beside it";
  op.inputs = {
      {"q", "[batch, tokens, heads, d], or packed [tokens, heads, d]", float_types, true, "queries"},
      {"k", "[batch, keys, kv_heads, d], or packed", float_types, true, "keys"},
      {"v", "[batch, keys, kv_heads, d_v], or packed", float_types, true, "values"},
      {"block_indices",
       "[batch, tokens, heads or kv_heads, entries], or packed",
       {i32},
       true,
       "numbers of key blocks, others such as -1 for none"},
      {"block_counts",
       "[batch, tokens, heads or kv_heads], or packed",
       {i32},
       false,
       "entries of each row that count"},
      {"cu_seqlens_q", "[sequences + 1]", {i32}, false, "where packed sequences of queries begin and end"},
      {"cu_seqlens_k", "[sequences + 1]", {i32}, false, "where packed sequences of keys begin and end"}};
  op.outputs = {{"out", "as q, with d_v features", "that of q"},
                {"lse", "[batch, heads, tokens], or packed [heads, tokens]", "f32"},
                {"window_out", "as out, or none", "that of q"},
                {"window_lse", "as lse, or none", "f32"}};
  op.options = {
      {"block_size", OptionType::integer, "64", "keys of a block", {}},
      {"layout", OptionType::choice, "bshd", "order of batch, sequence, heads, features", {"bshd", "bhsd"}},
      {"causal", OptionType::boolean, "true", "no later keys; the last query stands at the last key", {}},
      {"diagonal", OptionType::boolean, "false", "a token sees its own block, selected or not", {}},
      {"repeats", OptionType::boolean, "false", "a block counts as often as it is named", {}},
      {"window", OptionType::integer, "0", "keys of the window beside the selection, 0: none", {}},
      {"check_indices", OptionType::boolean, "false", "refuse entries that are neither -1 nor a block", {}},
      {"scale", OptionType::real, "", "of the scores, 1/sqrt(d) unless given", {}},
      {"tile_queries", OptionType::integer, "0", "tokens of a tile, 0: planned", {}},
      {"tile_keys", OptionType::integer, "0", "keys of a tile, 0: planned", {}}};
  op.check_cases = {
      example("grouped_window", {1, 40, 8, 2, 16, 3, 8}, f32, {{"window", "9"}}),
      example("counts_diagonal_f16", {2, 33, 2, 1, 16, 2, 16}, f16, {{"diagonal", "true"}}, true),
      example("repeats_group_of_3_bf16", {1, 150, 6, 2, 64, 5, 32}, bf16, {{"repeats", "true"}}),
      example("features_192_128_bf16", {1, 90, 8, 2, 192, 3, 32, 128}, bf16, {{"window", "20"}}),
      example("features_96_f16", {1, 80, 4, 2, 96, 3, 16}, f16, {{"diagonal", "true"}}),
      example("features_256_bf16", {1, 70, 4, 1, 256, 3, 32}, bf16),
      example("long_group_of_16_bf16", {1, 200, 16, 1, 128, 4, 64}, bf16)};
  op.bench_cases = {example("4096_grouped_16", {1, 4096, 16, 1, 128, 16, 64}, f32),
                    example("4096_grouped_4", {1, 4096, 16, 4, 128, 16, 64}, f32),
                    example("4096_alone", {1, 4096, 4, 4, 64, 16, 64}, f32)};
}

Tensors named(const NsaSelectedResult& result) {
  return {{"out", result.out},
          {"lse", result.lse},
          {"window_out", result.window_out},
          {"window_lse", result.window_lse}};
}

}  // namespace

Operator registered_nsa_selected_attention() {
  Operator op;
  describe_nsa(op);
  op.check_cases.push_back(
      example("three_warp_groups_bf16", {1, 130, 16, 1, 128, 4, 64}, bf16, {{"tile_queries", "12"}}));
  op.check_cases.push_back(example("three_warp_groups_of_4_f16", {1, 100, 4, 1, 64, 5, 64}, f16,
                                   {{"tile_queries", "48"}, {"diagonal", "true"}}, true));
  op.run = [](const Tensors& in, const Options& options, Target target) {
    return named(nsa_selected_attention(required(in, "q"), required(in, "k"), required(in, "v"),
                                        required(in, "block_indices"), nsa_options(in, options, target)));
  };
  op.reference = [](const Tensors& in, const Options& options) {
    prepared(in, options);
    return named(reference::nsa_selected_attention(required(in, "q"), required(in, "k"), required(in, "v"),
                                                   required(in, "block_indices"), nsa_options(in, options)));
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    const NsaKernel kernel = prepared(in, options, target).kernel;
    std::vector result{nsa_kernel(kernel)};
    if (kernel.divides()) result.push_back(nsa_rest_kernel({kernel}));
    return result;
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options&) {
    const Tensor& q = required(in, "q");
    return rounding_tolerance(q.dtype(), 16.0 * static_cast<double>(q.size(-1)));
  };
  return op;
}

}  // namespace tegula::ops
