#include "ops/block_sparse/tokens.hpp"

#include "ops/block_sparse/token_lists.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int least_block = 16;  // of keys: smaller ones do not fill a step
constexpr std::int64_t most_entries = 1024;

// [batch, kv heads, 1 or group, tokens, …] by tokens, with a row for each query head.
TensorRef by_tokens(const TensorRef& rows, std::int64_t group) {
  Shape shape = rows.shape;
  shape[2] = group;
  return rows.expand(shape).transpose(2, 3).transpose(1, 2);
}

}  // namespace

std::optional<NsaCall> as_selection(const BlockSparseCall& call) {
  const BlockSparseKernel& own = call.kernel;
  const HeadTensors& t = call.tensors;
  const bool fast = own.compute.bits() == 16 && own.dim % 16 == 0 && own.dim_v % 16 == 0;
  const bool plain = !own.mask && own.softcap == ScoreCap::none && own.k_block >= least_block;
  if (own.q_block != 1 || !fast || !plain || t.group() >= warp_group_rows) return std::nullopt;
  if (call.choice.size(4) > most_entries) return std::nullopt;
  NsaCall result;
  result.tensors = t;
  result.q_begin = call.q_begin, result.k_begin = call.k_begin;
  result.per_query_head = call.per_query_head;
  result.choice = own.varlen ? call.choice : by_tokens(call.choice, t.group());
  if (own.counts) result.counts = own.varlen ? call.counts : by_tokens(call.counts, t.group());
  result.scale = call.scale;
  result.longest = call.longest, result.longest_keys = call.longest_keys;
  NsaKernel& kernel = result.kernel;
  kernel.type = own.type, kernel.compute = own.compute, kernel.dim = own.dim, kernel.dim_v = own.dim_v;
  kernel.block = own.k_block, kernel.causal = own.causal, kernel.counts = own.counts;
  kernel.varlen = own.varlen;
  plan_nsa_call(call.tiles, true, result);
  return result;
}

std::optional<NsaBackwardCall> as_selection(const BlockSparseBackwardCall& call) {
  BlockSparseCall planned = call.forward;
  planned.tiles = {};
  const std::optional<NsaCall> forward = as_selection(planned);
  if (!forward) return std::nullopt;
  NsaBackwardCall result;
  result.forward = *forward;
  result.kernel.forward = forward->kernel;
  result.kernel.per_query_head = call.kernel.per_query_head, result.kernel.dlse = call.kernel.dlse;
  auto of_heads = [&](const TensorRef& rows) {
    return call.kernel.per_query_head || forward->kernel.varlen ? rows : rows.slice(3, 0, 1);
  };
  result.choice = of_heads(forward->choice);
  if (forward->kernel.counts) result.counts = of_heads(forward->counts);
  return takes_one_pass(result) ? std::optional(result) : std::nullopt;
}

void attend_tokens(const NsaCall& selection, const BlockSparseCall& call, Launch& launch) {
  if (!call.kernel.varlen) return attend_nsa(selection, launch);
  const TokenLists lists = lists_by_tokens(call, call.choice, call.counts, launch);
  auto of_group = [&](const TensorRef& rows) {
    Shape shape = rows.shape;
    shape[2] = call.tensors.group();
    return rows.expand(shape);
  };
  NsaCall own = selection;
  own.choice = of_group(lists.choice);
  if (call.kernel.counts) own.counts = of_group(lists.counts);
  attend_nsa(own, launch);
}

void differentiate_tokens(const NsaBackwardCall& selection, const BlockSparseBackwardCall& call,
                          Launch& launch) {
  const NsaOnePassKernel kernel = one_pass_kernel(selection);
  const std::int64_t tokens = tokens_of_one_pass(selection, kernel);
  NsaBackwardCall own = selection;
  own.dout = launch.call().formed("dout"), own.out = launch.call().formed("out");
  if (!call.forward.kernel.varlen) return run_one_pass(own, kernel, tokens, launch);
  const TokenLists lists = lists_by_tokens(call.forward, call.choice, call.counts, launch);
  own.choice = lists.choice;
  if (call.forward.kernel.counts) own.counts = lists.counts;
  run_one_pass(own, kernel, tokens, launch);
}

}  // namespace tegula::ops
