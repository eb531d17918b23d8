#include "ops/common/functions.hpp"
#include "ops/nsa/backward_call.hpp"
#include "ops/nsa/options.hpp"
#include "ops/reference/reference.hpp"
#include "ops/registered.hpp"

namespace tegula::ops {

namespace {

NsaSelectedBackwardOptions more_of(const Tensors& in, const Options& options) {
  NsaSelectedBackwardOptions more;
  more.dlse = optional_ref(in, "dlse");
  more.window_dout = optional_ref(in, "window_dout");
  more.window_out = optional_ref(in, "window_out");
  more.window_lse = optional_ref(in, "window_lse");
  more.window_dlse = optional_ref(in, "window_dlse");
  more.scale_gradient = options.boolean("scale_gradient");
  return more;
}

NsaBackwardCall prepared(const Tensors& in, const Options& options, Target target = Target::automatic()) {
  return prepare_nsa_backward(
      {required(in, "dout"), required(in, "out"), required(in, "lse"), optional_ref(in, "dlse")},
      required(in, "q"), required(in, "k"), required(in, "v"), required(in, "block_indices"),
      nsa_options(in, options, target), more_of(in, options));
}

Tensors named(const NsaSelectedGradients& gradients) {
  return {{"dq", gradients.dq}, {"dk", gradients.dk}, {"dv", gradients.dv}, {"dscale", gradients.dscale}};
}

// Gradients of scores, dq, dk and dv for every pair that the forward has, at least.
Work work_of(const Tensors& in, const Options& options) {
  const NsaBackwardCall call = prepared(in, options);
  const HeadTensors& t = call.forward.tensors;
  const double pairs =
      find_operator("nsa_selected_attention").work(in, options).flops / (2.0 * (t.dim() + t.dim_v()));
  const double written =
      bytes_of({{"q", required(in, "q")}, {"k", required(in, "k")}, {"v", required(in, "v")}});
  return {2 * pairs * (3.0 * t.dim() + 2.0 * t.dim_v()), bytes_of(in) + written};
}

// With the results of the forward: by the formula, or where it is too slow by the operator.
Case with_gradients(const Case& forward, bool large) {
  OptionTexts texts = forward.options;
  if (!large) texts["scale_gradient"] = "true";
  return {forward.name, texts, [forward, large](std::uint64_t seed) {
            Tensors in = forward.inputs(seed);
            const NsaSelectedOptions options =
                nsa_options(in, Options::parse(registered_nsa_selected_attention(), forward.options));
            const Tensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v"), &lists = in.at("block_indices");
            const NsaSelectedResult result = large
                                                 ? nsa_selected_attention(q, k, v, lists, options)
                                                 : reference::nsa_selected_attention(q, k, v, lists, options);
            auto random = [&, next = seed + 7](const Tensor& like, DType type) mutable {
              return Tensor::random_normal(like.shape(), type, ++next);
            };
            const DType type = q.dtype();
            in.emplace("dout", random(result.out, type));
            if (!large) in.emplace("dlse", random(result.lse, f32));
            if (options.window > 0) {
              in.emplace("window_dout", random(result.window_out, type));
              in.emplace("window_out", result.window_out.to(type));
              in.emplace("window_lse", result.window_lse.to(f32));
            }
            in.emplace("out", result.out.to(type));
            in.emplace("lse", result.lse.to(f32));
            return in;
          }};
}

void describe(Operator& op) {
  const Operator forward = registered_nsa_selected_attention();
  op.name = "nsa_selected_attention_backward";
  op.summary = "gradients of nsa_selected_attention, of its window too, and of a scale of every selection";
  op.inputs = forward.inputs;
  for (const char* prefix : {"", "window_"}) {
    const bool own = *prefix == '\0';
    const std::string of = own ? "" : " of the window";
    op.inputs.push_back({std::string(prefix) + "out", "as q, with d_v features", float_types, own,
                         "the forward's output" + of});
    op.inputs.push_back({std::string(prefix) + "lse",
                         "[batch, heads, tokens], or packed",
                         {f32},
                         own,
                         "the forward's lse" + of});
    op.inputs.push_back({std::string(prefix) + "dout", "as out", float_types, own, "gradient of out" + of});
    op.inputs.push_back({std::string(prefix) + "dlse", "as lse", {f32}, false, "gradient of lse" + of});
  }
  op.outputs = {{"dq", "as q", "that of q"},
                {"dk", "as k", "that of k"},
                {"dv", "as v", "that of v"},
                {"dscale", "as block_indices, or none", "f32"}};
  op.options = forward.options;
  op.options.push_back(
      {"scale_gradient", OptionType::boolean, "false", "also the gradient of a scale of every entry", {}});
  std::vector<Case> cases = forward.check_cases;
  std::erase_if(cases, [](const Case& own) { return own.options.contains("tile_queries"); });
  for (const Case& example : cases) op.check_cases.push_back(with_gradients(example, false));
  // Nothing but dq, dk and dv, which GPUs find in a way of their own.
  op.check_cases.push_back(with_gradients(cases.back(), true));
  op.check_cases.back().name += "_plain";
  for (const Case& example : forward.bench_cases) op.bench_cases.push_back(with_gradients(example, true));
}

}  // namespace

Operator registered_nsa_selected_attention_backward() {
  Operator op;
  describe(op);
  op.run = [](const Tensors& in, const Options& options, Target target) {
    return named(nsa_selected_attention_backward(required(in, "dout"), required(in, "q"), required(in, "k"),
                                                 required(in, "v"), required(in, "block_indices"),
                                                 required(in, "out"), required(in, "lse"),
                                                 nsa_options(in, options, target), more_of(in, options)));
  };
  op.reference = [](const Tensors& in, const Options& options) {
    prepared(in, options);
    return named(reference::nsa_selected_attention_backward(
        required(in, "dout"), required(in, "q"), required(in, "k"), required(in, "v"),
        required(in, "block_indices"), nsa_options(in, options), more_of(in, options)));
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    const NsaBackwardCall call = prepared(in, options, target);
    if (!runs_on_gpu(target, required(in, "q").device()) || !takes_slots(call))
      return std::vector{nsa_backward_kernel(call.kernel)};
    const NsaSlotsKernel kernel = slots_kernel(call);
    return std::vector{nsa_slots_kernel(kernel)};
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options&) {
    const Tensor &q = required(in, "q"), &k = required(in, "k");
    return gradient_tolerance(q.dtype(), static_cast<double>(q.size(-1) + k.size(-3) + q.size(-3)));
  };
  return op;
}

}  // namespace tegula::ops
