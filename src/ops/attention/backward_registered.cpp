#include "ops/attention/backward_call.hpp"
#include "ops/attention/options.hpp"
#include "ops/reference/reference.hpp"
#include "ops/registered.hpp"

namespace tegula::ops {

namespace {

AttentionBackwardCall prepared(const Tensors& in, const Options& options,
                               Target target = Target::automatic()) {
  return prepare_attention_backward({required(in, "dout"), required(in, "out"), required(in, "lse"),
                                     optional_ref(in, "dlse"), options.boolean("deterministic")},
                                    required(in, "q"), required(in, "k"), required(in, "v"),
                                    attention_options(in, options, target));
}

Tensors named(const AttentionGradients& gradients) {
  return {{"dq", gradients.dq}, {"dk", gradients.dk}, {"dv", gradients.dv}, {"dsinks", gradients.dsinks}};
}

// Seven products where the forward has two: scores and products of dout and values by each pass.
Work work_of(const Tensors& in, const Options& options) {
  const AttentionBackwardCall call = prepared(in, options);
  const HeadTensors& t = call.forward.tensors;
  Tensors forward_inputs = in;
  for (const char* name : {"dout", "out", "lse", "dlse"}) forward_inputs.erase(name);
  OptionTexts texts;
  for (const OptionInfo& option : find_operator("attention").options)
    if (options.has(option.name)) texts[option.name] = options.text(option.name);
  const Operator& forward = find_operator("attention");
  const Work work = forward.work(forward_inputs, Options::parse(forward, texts));
  // Gradients of scores, dq, dk and dv at least: 2.5 times the forward where d and d_v are equal.
  const double pairs = work.flops / (2.0 * (t.dim() + t.dim_v()));
  const double written =
      bytes_of({{"q", required(in, "q")}, {"k", required(in, "k")}, {"v", required(in, "v")}});
  return {2 * pairs * (3.0 * t.dim() + 2.0 * t.dim_v()), bytes_of(in) + written};
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, dim = 64, dim_v = 64;
};

// The results of the forward, for the small cases by the formula, for the large ones by the operator.
Case example(const std::string& name, Sizes s, DType type, OptionTexts options, bool sinks, bool large) {
  const bool swapped = options.count("layout") > 0 && options.at("layout") == "bhsd";
  auto shape = [=](std::int64_t tokens, std::int64_t heads, std::int64_t d) {
    return swapped ? Shape{s.batch, heads, tokens, d} : Shape{s.batch, tokens, heads, d};
  };
  return {name, options, [=](std::uint64_t seed) {
            Tensors in{{"q", Tensor::random_normal(shape(s.queries, s.heads, s.dim), type, seed)},
                       {"k", Tensor::random_normal(shape(s.keys, s.kv_heads, s.dim), type, seed + 1)},
                       {"v", Tensor::random_normal(shape(s.keys, s.kv_heads, s.dim_v), type, seed + 2)}};
            if (sinks) in.emplace("sinks", Tensor::random_normal({s.heads}, f32, seed + 3));
            const AttentionOptions forward =
                attention_options(in, Options::parse(registered_attention_backward(), options));
            const AttentionResult result =
                large ? attention(in.at("q"), in.at("k"), in.at("v"), forward)
                      : reference::attention(in.at("q"), in.at("k"), in.at("v"), forward);
            in.emplace("out", result.out.to(type));
            in.emplace("lse", result.lse.to(f32));
            in.emplace("dout", Tensor::random_normal(shape(s.queries, s.heads, s.dim_v), type, seed + 4));
            if (!large)
              in.emplace("dlse", Tensor::random_normal({s.batch, s.heads, s.queries}, f32, seed + 5));
            return in;
          }};
}

void describe(Operator& op) {
  const Operator forward = registered_attention();
  op.name = "attention_backward";
  op.summary = "gradients of attention with respect to q, k, v and the sinks";
  op.inputs = forward.inputs;
  op.inputs.push_back({"out", "as q, with d_v features", float_types, true, "the forward's output"});
  op.inputs.push_back(
      {"lse", "[batch, heads, queries], or packed [heads, tokens]", {f32}, true, "and its lse"});
  op.inputs.push_back({"dout", "as out", float_types, true, "gradient of out"});
  op.inputs.push_back({"dlse", "as lse", {f32}, false, "gradient of lse"});
  op.outputs = {{"dq", "as q", "that of q"},
                {"dk", "as k", "that of k"},
                {"dv", "as v", "that of v"},
                {"dsinks", "[heads], or none", "f32"}};
  op.options = forward.options;
  op.options.push_back({"deterministic", OptionType::boolean, "true", "equal bits in every run", {}});
  op.check_cases = {
      example("causal_grouped", {2, 17, 21, 4, 2, 16, 8}, f32, {{"causal", "true"}, {"layout", "bhsd"}},
              false, false),
      example("window_sinks_f16", {1, 24, 24, 2, 1, 16, 16}, f16, {{"left", "7"}, {"right", "2"}}, true,
              false),
      example("softcap_bf16", {1, 10, 40, 2, 2, 16, 16}, bf16, {{"softcap", "5"}, {"scale", "0.3"}}, false,
              false),
      example("causal_bf16", {1, 150, 200, 4, 2, 64, 32}, bf16, {{"causal", "true"}}, false, false),
      example("any_order_bf16", {1, 150, 200, 4, 2, 64, 32}, bf16,
              {{"causal", "true"}, {"deterministic", "false"}}, false, false),
      example("features_192_128_bf16", {1, 90, 110, 2, 1, 192, 128}, bf16, {{"causal", "true"}}, false,
              false),
      example("features_256_grouped_bf16", {1, 67, 77, 4, 1, 256, 256}, bf16, {{"causal", "true"}}, false,
              false),
      example("features_128_bf16", {1, 210, 150, 4, 2, 128, 128}, bf16, {}, false, false),
      example("features_128_any_order_f16", {1, 210, 150, 2, 2, 128, 64}, f16,
              {{"causal", "true"}, {"deterministic", "false"}}, false, false),
      example("wide_f16", {1, 130, 140, 2, 2, 128, 128}, f16, {{"left", "90"}, {"deterministic", "false"}},
              false, false)};
  op.bench_cases = {
      example("2048", {1, 2048, 2048, 8, 8, 64, 64}, f32, {}, false, true),
      example("2048_causal", {1, 2048, 2048, 8, 8, 64, 64}, f32, {{"causal", "true"}}, false, true),
      example("1024_grouped_bf16", {1, 1024, 1024, 16, 2, 128, 128}, bf16, {{"causal", "true"}}, false,
              true)};
}

}  // namespace

Operator registered_attention_backward() {
  Operator op;
  describe(op);
  op.run = [](const Tensors& in, const Options& options, Target target) {
    AttentionBackwardOptions more;
    more.dlse = optional_ref(in, "dlse");
    more.deterministic = options.boolean("deterministic");
    return named(attention_backward(required(in, "dout"), required(in, "q"), required(in, "k"),
                                    required(in, "v"), required(in, "out"), required(in, "lse"),
                                    attention_options(in, options, target), more));
  };
  op.reference = [](const Tensors& in, const Options& options) {
    prepared(in, options);
    return named(reference::attention_backward(required(in, "dout"), required(in, "q"), required(in, "k"),
                                               required(in, "v"), attention_options(in, options),
                                               optional_ref(in, "dlse")));
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    return std::vector{attention_backward_kernel(prepared(in, options, target).kernel)};
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options&) {
    const Tensor &q = required(in, "q"), &k = required(in, "k");
    const auto terms = static_cast<double>(q.size(-1) + k.size(-3) + q.size(-3));
    return gradient_tolerance(q.dtype(), terms);
  };
  return op;
}

}  // namespace tegula::ops
