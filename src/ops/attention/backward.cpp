#include "ops/attention/backward_call.hpp"
#include "ops/attention/backward_plan.hpp"
#include "ops/common/functions.hpp"

namespace tegula::ops {

namespace {

// The shape of a tensor like `like`, which is in the programs' order, as the caller sees it.
Shape caller_shape(Layout layout, const TensorRef& like, std::int64_t features) {
  Shape shape = like.shape;
  shape.back() = features;
  if (shape.size() == 4 && layout == Layout::bhsd) std::swap(shape[1], shape[2]);
  return shape;
}

BackwardMask mask_of(const AttentionKernel& forward) {
  if (forward.left || forward.varlen) return BackwardMask::other;
  return forward.right ? BackwardMask::causal : BackwardMask::none;
}

}  // namespace

BackwardInputs check_backward(const Arguments& args, const HeadTensors& t, Layout layout,
                              const BackwardTensors& given, const std::string& prefix) {
  args.check_device("q", t.q);
  const bool batched = t.q.rank() == 4;
  const Shape out_shape = caller_shape(layout, t.q, t.dim_v());
  const Shape lse_shape = batched ? Shape{t.q.size(0), t.heads, t.q.size(1)} : Shape{t.heads, t.q.size(0)};
  auto heads_of = [&](const std::string& name, const TensorRef& tensor) {
    args.check_shape(name, tensor, t.q.dtype, out_shape, "the shape of q with the features of v");
    args.check_contiguous_features(name, tensor);
    const TensorRef own = batched ? as_bshd(tensor, layout) : tensor;
    return split_heads(own, own.rank() - 2, t.group());
  };
  auto vector_of = [&](const std::string& name, const TensorRef& tensor) {
    args.check_shape(name, tensor, f32, lse_shape, batched ? "[batch, heads, queries]" : "[heads, tokens]");
    return split_heads(tensor, batched ? 1 : 0, t.group());
  };
  BackwardInputs inputs;
  inputs.dout = heads_of(prefix + "dout", given.dout);
  inputs.out = heads_of(prefix + "out", given.out);
  inputs.lse = vector_of(prefix + "lse", given.lse);
  if (given.dlse) inputs.dlse = vector_of(prefix + "dlse", *given.dlse);
  return inputs;
}

GradientOutputs make_gradients(const Arguments& args, const HeadTensors& t, Layout layout,
                               const AttentionBackwardOptions& given) {
  const bool batched = t.q.rank() == 4;
  GradientOutputs outputs;
  auto output = [&](const char* name, const std::optional<TensorRef>& tensor, const TensorRef& like,
                    Tensor& result) {
    result = args.output(name, tensor, caller_shape(layout, like, like.size(-1)), like.dtype,
                         fmt::format("the shape of {}", name + 1), like.device);
    args.check_contiguous_features(name, result);
    return batched ? as_bshd(result.ref(), layout) : result.ref();
  };
  const TensorRef dq = output("dq", given.dq, t.q, outputs.result.dq);
  outputs.dq = split_heads(dq, dq.rank() - 2, t.group());
  outputs.dk = output("dk", given.dk, t.k, outputs.result.dk);
  outputs.dv = output("dv", given.dv, t.v, outputs.result.dv);
  return outputs;
}

AttentionBackwardCall prepare_attention_backward(const BackwardTensors& given, const TensorRef& q,
                                                 const TensorRef& k, const TensorRef& v,
                                                 const AttentionOptions& options) {
  const char* op = "attention_backward";
  AttentionBackwardCall call;
  call.forward = prepare_attention(q, k, v, options, op);
  call.inputs = check_backward(Arguments(op), call.forward.tensors, options.layout, given);
  const AttentionKernel& forward = call.forward.kernel;
  const BackwardPlan plan =
      runs_on_gpu(options.target, q.device)
          ? plan_attention_backward_on_gpu(problem_of(call.forward), forward.compute, options.tiles,
                                           {mask_of(forward), forward.softcap, given.deterministic,
                                            target_for(options.target, q.device) != Target::cuda_sm80()})
          : BackwardPlan{plan_attention_backward(problem_of(call.forward), options.tiles)};
  call.kernel = {.type = forward.type,
                 .compute = forward.compute,
                 .dim = forward.dim,
                 .dim_v = forward.dim_v,
                 .pack = plan.tiles.pack,
                 .queries = plan.tiles.queries,
                 .keys = plan.tiles.keys,
                 .step = plan.step,
                 .parts = plan.parts,
                 .left = forward.left,
                 .right = forward.right,
                 .softcap = forward.softcap,
                 .varlen = forward.varlen,
                 .sinks = forward.sinks,
                 .dlse = given.dlse.has_value(),
                 .one_pass = plan.one_pass,
                 .ordered = plan.ordered};
  return call;
}

AttentionGradients attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                      const TensorRef& v, const TensorRef& out, const TensorRef& lse,
                                      const AttentionOptions& options,
                                      const AttentionBackwardOptions& gradients) {
  const Arguments args("attention_backward");
  const AttentionBackwardCall call =
      prepare_attention_backward({dout, out, lse, gradients.dlse, gradients.deterministic}, q, k, v, options);
  const HeadTensors& t = call.forward.tensors;
  GradientOutputs outputs = make_gradients(args, t, options.layout, gradients);
  args.check(call.kernel.sinks || !gradients.dsinks, "dsinks", "no dsinks without sinks", "dsinks",
             "leave it out");
  outputs.result.dsinks = call.kernel.sinks
                              ? args.output("dsinks", gradients.dsinks, {t.heads}, f32, "[heads]", t.q.device)
                              : Tensor::empty({0}, f32);
  if (nelements(t.q) == 0 && nelements(t.k) == 0) {
    if (call.kernel.sinks) copy_elements(Tensor::zeros({t.heads}, f32, t.q.device), outputs.result.dsinks);
    return outputs.result;
  }
  std::vector<Argument> values{call.inputs.dout,
                               split_heads(t.q, t.q.rank() - 2, t.group()),
                               t.k,
                               t.v,
                               call.inputs.out,
                               call.inputs.lse,
                               outputs.dq,
                               outputs.dk,
                               outputs.dv,
                               call.forward.scale};
  if (call.kernel.left) values.push_back(call.forward.left);
  if (call.kernel.right) values.push_back(call.forward.right);
  if (call.kernel.softcap) values.push_back(options.softcap);
  if (call.kernel.sinks) {
    values.push_back(split_heads(*options.sinks, 0, t.group()));
    values.push_back(split_heads(outputs.result.dsinks.ref(), 0, t.group()));
  }
  if (call.kernel.dlse) values.push_back(call.inputs.dlse);
  if (call.kernel.varlen) {
    values.push_back(*options.cu_seqlens_q);
    values.push_back(*options.cu_seqlens_k);
    values.push_back(call.forward.longest);
    values.push_back(call.forward.longest_keys);
  }
  compiled(call.kernel, target_for(options.target, t.q.device), attention_backward_kernel)
      .call_in_order(values);
  return outputs.result;
}

}  // namespace tegula::ops
