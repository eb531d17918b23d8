#include "ops/registered.hpp"

#include <algorithm>

#include "ops/attention/call.hpp"
#include "ops/attention/options.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

AttentionOptions attention_options(const Tensors& inputs, const Options& options, Target target) {
  AttentionOptions result;
  result.layout = options.text("layout") == "bshd" ? Layout::bshd : Layout::bhsd;
  result.scale = optional_real(options, "scale");
  result.causal = options.boolean("causal");
  result.left = options.integer("left"), result.right = options.integer("right");
  result.softcap = static_cast<float>(options.real("softcap"));
  result.sinks = optional_ref(inputs, "sinks");
  result.cu_seqlens_q = optional_ref(inputs, "cu_seqlens_q");
  result.cu_seqlens_k = optional_ref(inputs, "cu_seqlens_k");
  result.tiles = {options.small_integer("tile_queries"), options.small_integer("tile_keys")};
  // Gradients have no such option.
  result.splits = options.has("splits") ? options.small_integer("splits") : 0;
  result.target = target;
  return result;
}

namespace {

AttentionCall prepared(const Tensors& in, const Options& options, Target target = Target::automatic()) {
  return prepare_attention(required(in, "q"), required(in, "k"), required(in, "v"),
                           attention_options(in, options, target));
}

// Pairs of a query and a key that it sees, of one head of a sequence.
double visible_pairs(const AttentionCall& call, std::int64_t queries, std::int64_t keys) {
  double pairs = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t position = i + keys - queries;
    const std::int64_t end =
        call.kernel.right ? std::clamp<std::int64_t>(position + call.right + 1, 0, keys) : keys;
    const std::int64_t begin = call.kernel.left ? std::clamp<std::int64_t>(position - call.left, 0, keys) : 0;
    pairs += static_cast<double>(std::max<std::int64_t>(end - begin, 0));
  }
  return pairs;
}

Work work_of(const Tensors& in, const Options& options) {
  const AttentionCall call = prepared(in, options);
  const HeadTensors& t = call.tensors;
  double pairs = 0;
  if (call.kernel.varlen) {
    const auto q = required(in, "cu_seqlens_q").values<std::int32_t>();
    const auto k = required(in, "cu_seqlens_k").values<std::int32_t>();
    for (std::size_t b = 0; b + 1 < q.size(); ++b)
      pairs += visible_pairs(call, q[b + 1] - q[b], k[b + 1] - k[b]);
  } else {
    pairs = static_cast<double>(t.q.size(0)) * visible_pairs(call, t.q.size(1), t.k.size(1));
  }
  const double rows = static_cast<double>(nelements(t.q)) / t.dim();
  return {2 * pairs * static_cast<double>(t.heads) * (t.dim() + t.dim_v()),
          bytes_of(in) + rows * (t.dim_v() * t.q.dtype.bytes() + 4)};
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, dim = 64, dim_v = 64;
};

Case example(const std::string& name, Sizes s, DType type, OptionTexts options = {}, bool sinks = false) {
  const bool swapped = options.count("layout") > 0 && options.at("layout") == "bhsd";
  auto shape = [=](std::int64_t tokens, std::int64_t heads, std::int64_t d) {
    return swapped ? Shape{s.batch, heads, tokens, d} : Shape{s.batch, tokens, heads, d};
  };
  return {name, std::move(options), [=](std::uint64_t seed) {
            Tensors inputs{{"q", Tensor::random_normal(shape(s.queries, s.heads, s.dim), type, seed)},
                           {"k", Tensor::random_normal(shape(s.keys, s.kv_heads, s.dim), type, seed + 1)},
                           {"v", Tensor::random_normal(shape(s.keys, s.kv_heads, s.dim_v), type, seed + 2)}};
            if (sinks) inputs.emplace("sinks", Tensor::random_normal({s.heads}, f32, seed + 3));
            return inputs;
          }};
}

Case packed_example() {
  return {"packed", {{"causal", "true"}}, [](std::uint64_t seed) {
            return Tensors{{"q", Tensor::random_normal({26, 2, 16}, f32, seed)},
                           {"k", Tensor::random_normal({40, 1, 16}, f32, seed + 1)},
                           {"v", Tensor::random_normal({40, 1, 24}, f32, seed + 2)},
                           {"cu_seqlens_q", Tensor::from<std::int32_t>({0, 9, 9, 26})},
                           {"cu_seqlens_k", Tensor::from<std::int32_t>({0, 20, 23, 40})}};
          }};
}

void describe_attention(Operator& op) {
  op.name = "attention";
  op.summary = "softmax(scale q k^T) v over all keys or a window, with grouped heads";
  op.inputs = {
      {"q", "[batch, queries, heads, d], or packed [tokens, heads, d]", float_types, true, "queries"},
      {"k", "[batch, keys, kv_heads, d], or packed", float_types, true, "keys"},
      {"v", "[batch, keys, kv_heads, d_v], or packed", float_types, true, "values"},
      {"sinks", "[heads]", float_types, false, "a logit a head that has no value"},
      {"cu_seqlens_q", "[sequences + 1]", {i32}, false, "where packed sequences of queries begin and end"},
      {"cu_seqlens_k", "[sequences + 1]", {i32}, false, "where packed sequences of keys begin and end"}};
  op.outputs = {{"out", "as q, with d_v features", "that of q"},
                {"lse", "[batch, heads, queries], or packed [heads, tokens]", "f32"}};
  op.options = {
      {"layout", OptionType::choice, "bshd", "order of batch, sequence, heads, features", {"bshd", "bhsd"}},
      {"causal", OptionType::boolean, "false", "no later keys; the last query stands at the last key", {}},
      {"left", OptionType::integer, "-1", "keys before a query that it sees, -1: all", {}},
      {"right", OptionType::integer, "-1", "keys behind a query that it sees, -1: all", {}},
      {"scale", OptionType::real, "", "of the scores, 1/sqrt(d) unless given", {}},
      {"softcap", OptionType::real, "0", "scores become c tanh(score / c), 0: not", {}},
      {"splits", OptionType::integer, "0", "parts of the keys of a tile, merged afterwards, 0: planned", {}},
      {"tile_queries", OptionType::integer, "0", "queries of a tile, 0: planned", {}},
      {"tile_keys", OptionType::integer, "0", "keys of a tile, 0: planned", {}}};
  op.check_cases = {
      example("full", {1, 40, 50, 2, 2, 16, 16}, f32),
      example("causal_grouped", {2, 33, 45, 4, 2, 16, 8}, f32, {{"causal", "true"}, {"layout", "bhsd"}}),
      example("window_sinks_f16", {1, 40, 40, 2, 1, 24, 24}, f16, {{"left", "7"}, {"right", "2"}}, true),
      example("softcap_bf16", {1, 20, 64, 2, 2, 32, 32}, bf16, {{"softcap", "5"}, {"scale", "0.3"}}),
      example("splits", {2, 3, 150, 4, 2, 32, 16}, bf16, {{"splits", "4"}, {"causal", "true"}}, true),
      packed_example()};
  op.bench_cases = {
      example("4096", {1, 4096, 4096, 8, 8, 64, 64}, f32),
      example("4096_causal", {1, 4096, 4096, 8, 8, 64, 64}, f32, {{"causal", "true"}}),
      example("1024_grouped_bf16", {1, 1024, 1024, 16, 2, 128, 128}, bf16, {{"causal", "true"}}),
      example("decode", {4, 1, 4096, 32, 4, 128, 128}, f32),
      example("decode_bf16", {1, 1, 32768, 64, 8, 128, 128}, bf16)};
}

}  // namespace

Operator registered_attention() {
  Operator op;
  describe_attention(op);
  auto tensors = [](const AttentionResult& result) {
    return Tensors{{"out", result.out}, {"lse", result.lse}};
  };
  op.run = [=](const Tensors& in, const Options& options, Target target) {
    return tensors(attention(required(in, "q"), required(in, "k"), required(in, "v"),
                             attention_options(in, options, target)));
  };
  op.reference = [=](const Tensors& in, const Options& options) {
    prepared(in, options);
    return tensors(reference::attention(required(in, "q"), required(in, "k"), required(in, "v"),
                                        attention_options(in, options)));
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    return std::vector{attention_kernel(prepared(in, options, target).kernel)};
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options&) {
    const Tensor& q = required(in, "q");
    return rounding_tolerance(q.dtype(), 16.0 * static_cast<double>(q.size(-1)));
  };
  return op;
}

}  // namespace tegula::ops
