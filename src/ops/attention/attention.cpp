#include <algorithm>

#include "ops/attention/call.hpp"
#include "ops/attention/plan.hpp"
#include "ops/attention/sequences.hpp"
#include "ops/attention/splits.hpp"
#include "ops/common/functions.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t widest = std::int64_t{1} << 29;  // as large as any tensor

void check_window(const Arguments& args, const AttentionOptions& options, AttentionCall& call) {
  for (auto [name, size] : {std::pair("left", options.left), std::pair("right", options.right)})
    args.check(size >= -1, name, "a number of keys, or -1 for all", worded("{}", size), "leave it out");
  const bool right = options.causal || options.right >= 0;
  call.kernel.left = options.left >= 0;
  call.kernel.right = right;
  call.left = std::min(options.left, widest);
  call.right = options.causal ? 0 : std::min(options.right, widest);
}

}  // namespace

AttentionProblem problem_of(const AttentionCall& call) {
  const HeadTensors& t = call.tensors;
  AttentionProblem problem;
  problem.sequences = call.kernel.varlen ? 1 : t.q.size(0);
  problem.heads = t.heads;
  problem.group = t.group();
  problem.queries = call.kernel.varlen ? call.longest : t.q.size(1);
  problem.keys = t.k.size(-3);
  if (call.kernel.varlen) problem.packed = std::max<std::int64_t>(call.sequences, 1);
  problem.seen = problem.keys;
  if (call.kernel.left && call.kernel.right)
    problem.seen = std::min(problem.keys, call.left + call.right + 1);
  problem.dim = t.dim();
  problem.dim_v = t.dim_v();
  return problem;
}

AttentionCall prepare_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                const AttentionOptions& options, const char* op) {
  const Arguments args(op);
  AttentionCall call;
  call.kernel.varlen = options.cu_seqlens_q || options.cu_seqlens_k;
  call.tensors = check_heads(args, q, k, v, call.kernel.varlen ? 3 : 4, options.layout);
  const PackedLengths lengths = check_sequences(
      args, {options.cu_seqlens_q, options.cu_seqlens_k, {options.max_seqlen_q, options.max_seqlen_k}},
      call.tensors);
  call.longest = lengths.queries, call.longest_keys = lengths.keys;
  if (call.kernel.varlen) call.sequences = options.cu_seqlens_q->size(0) - 1;
  check_window(args, options, call);
  check_softcap(args, options.softcap);
  check_tiles(args, options.tiles);
  args.check(options.splits >= 0 && options.splits <= most_splits, "splits",
             worded("a number from 1 to {}, or 0 for the plan's choice", most_splits),
             worded("{}", options.splits), "leave it out");
  call.scale = program_scale(checked_scale(args, options.scale, call.tensors.dim()), options.softcap);
  if (options.sinks) {
    args.check_tensor("sinks", *options.sinks, float_types, {1});
    args.check(options.sinks->size(0) == call.tensors.heads, "sinks",
               worded("[heads] = [{}]", call.tensors.heads), *options.sinks, "give every head of q a sink");
  }
  AttentionKernel& kernel = call.kernel;
  if (options.sinks) kernel.sinks = options.sinks->dtype;
  kernel.type = q.dtype;
  kernel.dim = call.tensors.dim(), kernel.dim_v = call.tensors.dim_v();
  kernel.softcap = options.softcap > 0;
  const bool on_gpu = runs_on_gpu(options.target, q.device);
  kernel.compute = multiplied_type(q.dtype, on_gpu);
  const AttentionPlan plan = on_gpu ? plan_attention_on_gpu(problem_of(call), kernel.compute, options.tiles)
                                    : plan_attention(problem_of(call), options.tiles);
  kernel.queries = plan.queries, kernel.keys = plan.keys, kernel.pack = plan.pack;
  call.splits = options.splits > 0 ? options.splits : plan.splits;
  kernel.split = call.splits > 1;
  return call;
}

AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options) {
  const AttentionCall call = prepare_attention(q, k, v, options);
  const HeadTensors& t = call.tensors;
  const HeadOutputs outputs =
      make_outputs(Arguments("attention"), t, options.layout, options.out, options.lse);
  if (nelements(outputs.out) == 0) return outputs.result;
  std::vector<Argument> values{
      split_heads(t.q, t.q.rank() - 2, t.group()), t.k, t.v, outputs.out, outputs.lse, call.scale};
  if (call.kernel.left) values.push_back(call.left);
  if (call.kernel.right) values.push_back(call.right);
  if (call.kernel.softcap) values.push_back(options.softcap);
  if (call.kernel.sinks) values.push_back(split_heads(*options.sinks, 0, t.group()));
  if (call.kernel.varlen) {
    values.push_back(*options.cu_seqlens_q);
    values.push_back(*options.cu_seqlens_k);
    values.push_back(call.longest);
  }
  if (call.kernel.split) values.push_back(call.splits);
  compiled(call.kernel, target_for(options.target, t.q.device), attention_kernel).call_in_order(values);
  return outputs.result;
}

}  // namespace tegula::ops
