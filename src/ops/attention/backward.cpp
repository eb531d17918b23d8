#include "ops/attention/backward_call.hpp"

namespace tegula::ops {

namespace {

// The shape of a tensor like `like`, which is in the programs' order, as the caller sees it.
Shape caller_shape(Layout layout, const TensorRef& like, std::int64_t features) {
  Shape shape = like.shape;
  shape.back() = features;
  if (shape.size() == 4 && layout == Layout::bhsd) std::swap(shape[1], shape[2]);
  return shape;
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

}  // namespace tegula::ops
