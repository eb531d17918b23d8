#include <algorithm>

#include "ops/common/functions.hpp"
#include "ops/common/plan.hpp"
#include "ops/nsa/backward_call.hpp"
#include "ops/nsa/backward_plan.hpp"

namespace tegula::ops {

namespace {

constexpr char op[] = "nsa_selected_attention_backward";
constexpr double most_entries = 2147483648.0;

void plan_lists(NsaBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  const bool packed = call.kernel.forward.varlen;
  const std::int64_t queries = t.q.size(-3), keys = t.k.size(-3),
                     longest_keys = packed ? std::min(call.forward.longest_keys, keys) : keys;
  call.kernel.chunk = rows_of_chunk(
      inverse_rows, queries, (longest_keys + call.kernel.forward.block - 1) / call.kernel.forward.block,
      counts_of_token * (queries + keys));
}

void check_window(const Arguments& args, const NsaSelectedOptions& options,
                  const NsaSelectedBackwardOptions& given) {
  const bool wanted = given.window_dout.has_value();
  args.check(!wanted || options.window > 0, "window_dout", "a window in the options", "none",
             "give the window of the forward");
  args.check(!wanted || (given.window_out && given.window_lse), "window_dout",
             "window_out and window_lse with it", "one of them missing", "give the results of the forward");
  args.check(wanted || !given.window_dlse, "window_dlse", "window_dout with it", "window_dlse alone",
             "give window_dout, of zeros if need be");
}

void check_sums(const Arguments& args, const NsaBackwardCall& call, const NsaSelectedBackwardOptions& given) {
  const TensorRef& choice = call.choice;
  const double rows = static_cast<double>(nelements(choice)) /
                      static_cast<double>(std::max<std::int64_t>(1, choice.size(-3) * choice.size(-2)));
  const double own = static_cast<double>(nelements(call.forward.tensors.q));
  args.check(rows + own / call.forward.tensors.dim() < most_entries, "block_indices",
             "fewer than 2^31 entries of a head, of all batches together", choice, "split the batch");
  args.check(given.scale_gradient || !given.dscale, "dscale", "scale_gradient with it", "dscale alone",
             "set scale_gradient");
}

void check_outputs(const Arguments& args, const NsaCall& forward, const BackwardTensors& own,
                   const NsaSelectedOptions& options, const NsaSelectedBackwardOptions& given) {
  if (!given.dq && !given.dk && !given.dv && !given.dscale) return;
  args.check_apart({{"dq", given.dq}, {"dk", given.dk}, {"dv", given.dv}, {"dscale", given.dscale}},
                   {{"dout", own.dout},
                    {"q", forward.q},
                    {"k", forward.k},
                    {"v", forward.v},
                    {"block_indices", forward.lists},
                    {"block_counts", options.block_counts},
                    {"out", own.out},
                    {"lse", own.lse},
                    {"dlse", own.dlse},
                    {"window_dout", given.window_dout},
                    {"window_out", given.window_out},
                    {"window_lse", given.window_lse},
                    {"window_dlse", given.window_dlse},
                    {"cu_seqlens_q", options.cu_seqlens_q},
                    {"cu_seqlens_k", options.cu_seqlens_k}});
}

void plan_window(const NsaSelectedOptions& options, const NsaSelectedBackwardOptions& given,
                 NsaBackwardCall& call) {
  auto ordered = [&](const TensorRef& tensor) {
    return call.forward.tensors.q.rank() == 4 ? as_bshd(tensor, options.layout) : tensor;
  };
  call.window_tensors = {ordered(*given.window_dout), ordered(*given.window_out), *given.window_lse,
                         given.window_dlse};
  call.window_options = window_options(options);
  call.window_options.layout = Layout::bshd;
  call.window_options.out = call.window_options.lse = std::nullopt;
}

// Of a tensor with rows of entries, in the order of the programs.
TensorRef dscale_of(const Arguments& args, const NsaBackwardCall& call, const TensorRef& block_indices,
                    const NsaSelectedOptions& options, const NsaSelectedBackwardOptions& given,
                    Tensor& result) {
  result = args.output("dscale", given.dscale, block_indices.shape, f32, "the shape of block_indices",
                       block_indices.device);
  const int rank = call.forward.tensors.q.rank();
  const TensorRef own = rank == 4 ? as_bshd(result.ref(), options.layout) : result.ref();
  return split_heads(own, rank - 2, call.forward.per_query_head ? call.forward.tensors.group() : 1);
}

}  // namespace

NsaBackwardCall prepare_nsa_backward(const BackwardTensors& given, const TensorRef& q, const TensorRef& k,
                                     const TensorRef& v, const TensorRef& block_indices,
                                     const NsaSelectedOptions& options,
                                     const NsaSelectedBackwardOptions& gradients) {
  const Arguments args(op);
  NsaBackwardCall call;
  call.forward = prepare_nsa(q, k, v, block_indices, options, false, op);
  const HeadTensors& t = call.forward.tensors;
  call.inputs = check_backward(args, t, options.layout, given);
  call.cu_seqlens_q = options.cu_seqlens_q, call.cu_seqlens_k = options.cu_seqlens_k;
  check_window(args, options, gradients);
  NsaBackwardKernel& kernel = call.kernel;
  kernel.forward = call.forward.kernel;
  kernel.per_query_head = call.forward.per_query_head;
  kernel.dlse = given.dlse.has_value();
  kernel.window = gradients.window_dout.has_value(), kernel.window_dlse = gradients.window_dlse.has_value();
  kernel.dscale = gradients.scale_gradient;
  if (kernel.window) {
    call.window = check_backward(
        args, t, options.layout,
        {*gradients.window_dout, *gradients.window_out, *gradients.window_lse, gradients.window_dlse},
        "window_");
    plan_window(options, gradients, call);
  }
  const int members_at = t.q.rank() - 1;
  const bool one = !kernel.per_query_head && call.forward.choice.size(members_at) > 1;
  auto of_heads = [&](const TensorRef& tensor) { return one ? tensor.slice(members_at, 0, 1) : tensor; };
  call.choice = of_heads(call.forward.choice);
  if (kernel.forward.counts) call.counts = of_heads(call.forward.counts);
  const bool on_gpu = runs_on_gpu(options.target, q.device);
  plan_two_passes(on_gpu, kernel.forward.varlen ? call.forward.longest : t.q.size(1), kernel);
  plan_lists(call);
  check_sums(args, call, gradients);
  return call;
}

void run_two_passes(const NsaBackwardCall& call, const NsaSelectedOptions& options,
                    const GradientOutputs& outputs, const TensorRef& dscale) {
  const HeadTensors& t = call.forward.tensors;
  std::vector<Argument> values{call.inputs.dout,
                               split_heads(t.q, t.q.rank() - 2, t.group()),
                               t.k,
                               t.v,
                               call.inputs.out,
                               call.inputs.lse,
                               outputs.dq,
                               outputs.dk,
                               outputs.dv,
                               call.choice,
                               call.forward.scale};
  if (call.kernel.forward.counts) values.push_back(call.counts);
  if (call.kernel.dlse) values.push_back(call.inputs.dlse);
  if (call.kernel.window) {
    for (const TensorRef* tensor : {&call.window.dout, &call.window.out, &call.window.lse})
      values.push_back(*tensor);
    values.push_back(options.window - 1);
    if (call.kernel.window_dlse) values.push_back(call.window.dlse);
  }
  if (call.kernel.dscale) values.push_back(dscale);
  if (call.kernel.forward.varlen) {
    values.push_back(*options.cu_seqlens_q);
    values.push_back(*options.cu_seqlens_k);
    values.push_back(call.forward.longest);
    values.push_back(call.forward.longest_keys);
  }
  compiled(call.kernel, target_for(options.target, t.q.device), nsa_backward_kernel).call_in_order(values);
}

NsaSelectedGradients nsa_selected_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& block_indices, const TensorRef& out,
                                                     const TensorRef& lse, const NsaSelectedOptions& options,
                                                     const NsaSelectedBackwardOptions& gradients) {
  const Arguments args(op);
  const BackwardTensors tensors{dout, out, lse, gradients.dlse};
  const NsaBackwardCall call = prepare_nsa_backward(tensors, q, k, v, block_indices, options, gradients);
  const HeadTensors& t = call.forward.tensors;
  check_nsa_indices(args, call.forward, options);
  GradientOutputs outputs =
      make_gradients(args, t, options.layout, {.dq = gradients.dq, .dk = gradients.dk, .dv = gradients.dv});
  NsaSelectedGradients result{outputs.result.dq, outputs.result.dk, outputs.result.dv,
                              Tensor::empty({0}, f32)};
  TensorRef dscale;
  if (call.kernel.dscale) dscale = dscale_of(args, call, block_indices, options, gradients, result.dscale);
  check_outputs(args, call.forward, tensors, options, gradients);
  if (nelements(t.q) == 0 && nelements(t.k) == 0) return result;
  if (runs_on_gpu(options.target, q.device) && takes_slots(call)) {
    const NsaSlotsKernel kernel = slots_kernel(call);
    run_slots(call, kernel, tokens_of_slots(call, kernel), outputs, target_for(options.target, q.device));
  } else {
    run_two_passes(call, options, outputs, dscale);
  }
  return result;
}

}  // namespace tegula::ops
