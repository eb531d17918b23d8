#include "ops/block_sparse/backward_call.hpp"
#include "ops/block_sparse/options.hpp"
#include "ops/block_sparse/token_lists.hpp"
#include "ops/block_sparse/tokens.hpp"
#include "ops/reference/reference.hpp"
#include "ops/registered.hpp"

namespace tegula::ops {

namespace {

BlockSparseBackwardCall prepared(const Tensors& in, const Options& options,
                                 Target target = Target::automatic()) {
  return prepare_block_sparse_backward({required(in, "dout"), required(in, "out"), required(in, "lse"),
                                        optional_ref(in, "dlse"), options.boolean("deterministic")},
                                       required(in, "q"), required(in, "k"), required(in, "v"),
                                       block_sparse_options(in, options, target));
}

Tensors named(const AttentionGradients& gradients) {
  return {{"dq", gradients.dq}, {"dk", gradients.dk}, {"dv", gradients.dv}};
}

// Gradients of scores, dq, dk and dv for every pair that the forward has, at least.
Work work_of(const Tensors& in, const Options& options) {
  const BlockSparseBackwardCall call = prepared(in, options);
  const HeadTensors& t = call.forward.tensors;
  const Operator& forward = find_operator("block_sparse_attention");
  Tensors forward_inputs = in;
  for (const char* name : {"dout", "out", "lse", "dlse"}) forward_inputs.erase(name);
  const double pairs = forward.work(forward_inputs, options).flops / (2.0 * (t.dim() + t.dim_v()));
  const double written =
      bytes_of({{"q", required(in, "q")}, {"k", required(in, "k")}, {"v", required(in, "v")}});
  return {2 * pairs * (3.0 * t.dim() + 2.0 * t.dim_v()), bytes_of(in) + written};
}

// With the results of the forward: by the formula, or where it is too slow by the operator.
Case with_gradients(const Case& forward, bool large) {
  return {forward.name, forward.options, [forward, large](std::uint64_t seed) {
            Tensors in = forward.inputs(seed);
            const BlockSparseOptions options = block_sparse_options(
                in, Options::parse(registered_block_sparse_attention(), forward.options));
            const Tensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
            const AttentionResult result = large ? block_sparse_attention(q, k, v, options)
                                                 : reference::block_sparse_attention(q, k, v, options);
            in.emplace("dout", Tensor::random_normal(result.out.shape(), q.dtype(), seed + 8));
            if (!large) in.emplace("dlse", Tensor::random_normal(result.lse.shape(), f32, seed + 9));
            in.emplace("out", result.out.to(q.dtype()));
            in.emplace("lse", result.lse.to(f32));
            return in;
          }};
}

void describe(Operator& op) {
  const Operator forward = registered_block_sparse_attention();
  op.name = "block_sparse_attention_backward";
  op.summary = "gradients of block_sparse_attention with respect to q, k and v";
  op.inputs = forward.inputs;
  op.inputs.push_back({"out", "as q, with d_v features", float_types, true, "the forward's output"});
  op.inputs.push_back(
      {"lse", "[batch, heads, queries], or packed [heads, tokens]", {f32}, true, "and its lse"});
  op.inputs.push_back({"dout", "as out", float_types, true, "gradient of out"});
  op.inputs.push_back({"dlse", "as lse", {f32}, false, "gradient of lse"});
  op.outputs = {{"dq", "as q", "that of q"}, {"dk", "as k", "that of k"}, {"dv", "as v", "that of v"}};
  op.options = forward.options;
  op.options.push_back({"deterministic", OptionType::boolean, "true", "equal bits in every run", {}});
  for (const Case& example : forward.check_cases) op.check_cases.push_back(with_gradients(example, false));
  Case any_order = op.check_cases.back();
  any_order.name += "_any_order", any_order.options["deterministic"] = "false";
  op.check_cases.push_back(std::move(any_order));
  for (const Case& example : forward.bench_cases) op.bench_cases.push_back(with_gradients(example, true));
}

}  // namespace

Operator registered_block_sparse_attention_backward() {
  Operator op;
  describe(op);
  op.run = [](const Tensors& in, const Options& options, Target target) {
    AttentionBackwardOptions more;
    more.dlse = optional_ref(in, "dlse");
    more.deterministic = options.boolean("deterministic");
    return named(block_sparse_attention_backward(required(in, "dout"), required(in, "q"), required(in, "k"),
                                                 required(in, "v"), required(in, "out"), required(in, "lse"),
                                                 block_sparse_options(in, options, target), more));
  };
  op.reference = [](const Tensors& in, const Options& options) {
    prepared(in, options);
    return named(reference::block_sparse_attention_backward(
        required(in, "dout"), required(in, "q"), required(in, "k"), required(in, "v"),
        block_sparse_options(in, options), optional_ref(in, "dlse")));
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    const BlockSparseBackwardCall call = prepared(in, options, target);
    const auto selection = call.kernel.forward.listed ? as_selection(call) : std::nullopt;
    if (!selection) return std::vector{block_sparse_backward_kernel(call.kernel)};
    std::vector<lang::Kernel> kernels;
    if (call.forward.kernel.varlen) kernels.push_back(token_lists_kernel({call.forward.kernel.counts}));
    kernels.push_back(nsa_slots_kernel(slots_kernel(*selection)));
    return kernels;
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
