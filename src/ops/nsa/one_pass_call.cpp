// Calls of nsa_one_pass_kernel.
#include <algorithm>
#include <bit>

#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/backward_call.hpp"
#include "ops/pieces/plan.hpp"
#include "tegula/ops/attention_backward.hpp"

namespace tegula::ops {

namespace {

constexpr int tile_rows = 64, tile_keys = 64;
constexpr int most_width = 768;  // of rows that are sorted 32 at a time, in shared memory

// Heads of a group that select differently are those of groups of their own, whose keys are the same.
std::int64_t group_of_call(const NsaBackwardCall& call) {
  return call.kernel.per_query_head ? 1 : call.forward.tensors.group();
}

// Packed sequences are one entry of a batch.
std::int64_t batch_of(const NsaBackwardCall& call) {
  return call.kernel.forward.varlen ? 1 : call.forward.tensors.q.size(0);
}

TensorRef with_batch(const NsaBackwardCall& call, const TensorRef& tensor) {
  if (!call.kernel.forward.varlen) return tensor;
  Shape shape = tensor.shape;
  shape.insert(shape.begin(), 1);
  return tensor.expand(shape);
}

}  // namespace

bool can_take_one_pass(const NsaBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  const bool has_pairs = nelements(t.q) > 0 && nelements(t.k) > 0;
  // The gradient of a selection's scale would come from partials, which are rounded.
  return has_pairs && !call.kernel.dscale && group_of_call(call) <= tile_rows;
}

namespace {

// Tokens whose partials take no more memory than they may; below a chunk, too few.
std::int64_t tokens_in_memory(const NsaBackwardCall& call, const NsaOnePassKernel& kernel) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t partials = kernel.forward.width() * kernel.parts();
  const std::int64_t of_token =
      std::max<std::int64_t>(1, batch_of(call) * t.kv_heads * group_of_call(call) * t.dim() * partials *
                                    kernel.forward.compute.bytes());
  return std::max(bytes_of_partials, nelements(t.q) * f32.bytes()) / of_token;
}

// Tokens of a chunk of pairs.
int chunk_of(const NsaBackwardCall& call, const NsaOnePassKernel& kernel) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t tokens = t.q.size(-3), keys = t.k.size(-3), block = kernel.forward.block,
                     longest = call.kernel.forward.varlen ? std::min(call.forward.longest_keys, keys) : keys;
  return rows_of_chunk(chunk_tokens, std::min(tokens, tokens_of_one_pass(call, kernel)),
                       (longest + block - 1) / block, pair_counts_of_token * (tokens + keys));
}

}  // namespace

bool takes_one_pass(const NsaBackwardCall& call) {
  const NsaKernel& f = call.kernel.forward;
  const bool fast = f.compute.bits() == 16 && f.dim % 16 == 0 && f.dim_v % 16 == 0;
  const bool fits = std::max(f.dim, f.dim_v) <= most_dim_of_128_rows &&
                    f.block >= gpu_table.selection.least_block && f.width() <= most_width;
  return can_take_one_pass(call) && fast && fits &&
         tokens_in_memory(call, one_pass_kernel(call)) >= chunk_tokens;
}

NsaOnePassKernel one_pass_kernel(const NsaBackwardCall& call) {
  NsaOnePassKernel kernel;
  kernel.forward = call.kernel.forward;
  NsaKernel& f = kernel.forward;
  f.members = static_cast<int>(group_of_call(call));
  f.pack = static_cast<int>(std::bit_ceil(static_cast<unsigned>(f.members)));
  // The tiles of the forward and their lists have no part in it.
  f.queries = 1, f.keys = 1;
  f.lists = false, f.fewest = 1, f.least_gain = 0;
  kernel.queries = tile_rows / f.pack, kernel.keys = tile_keys;
  kernel.dlse = call.kernel.dlse, kernel.plus = call.kernel.window;
  f.chunk = chunk_of(call, kernel);
  return kernel;
}

std::int64_t tokens_of_one_pass(const NsaBackwardCall& call, const NsaOnePassKernel& kernel) {
  return std::max<std::int64_t>(1, tokens_in_memory(call, kernel) / chunk_tokens) * chunk_tokens;
}

namespace {

// The gradients of the window: rounded once before they are added.
struct Addends {
  Tensor dq, dk, dv;
};

Addends window_gradients(const NsaBackwardCall& call, Launch& launch) {
  const HeadTensors& t = call.forward.tensors;
  const NsaSelectedBackward& op = *call.op;
  Addends result{launch.scratch(t.q.shape, t.q.dtype), launch.scratch(t.k.shape, t.k.dtype),
                 launch.scratch(t.v.shape, t.v.dtype)};
  if (!launch.runs()) return result;
  const auto ordered = [&](const TensorRef& tensor) {
    return tensor.rank() == 4 ? as_bshd(tensor, op.layout) : tensor;
  };
  AttentionOptions window = window_options(op);
  window.layout = Layout::bshd;
  attention_backward(
      ordered(*op.dwindow_out), t.q, t.k, t.v, ordered(*op.window_out), *op.window_lse, window,
      {.dlse = op.dwindow_lse, .dq = result.dq.ref(), .dk = result.dk.ref(), .dv = result.dv.ref()});
  return result;
}

// The part of a call: some tokens, and some heads of every group.
struct OnePassPart {
  std::int64_t begin, end, member, members;
  bool is_first, is_last;
};

struct OnePassSums {
  Tensor dk, dv;
  std::optional<Addends> plus;
};

void run_part(const NsaBackwardCall& call, const NsaOnePassKernel& kernel, const OnePassPart& part,
              const OnePassSums& sums, Launch& launch) {
  const HeadTensors& t = call.forward.tensors;
  const BoundCall& bound = launch.call();
  const auto rows = [&](const TensorRef& tensor) {
    return with_batch(call, tensor)
        .slice(1, part.begin, part.end)
        .slice(3, part.member, part.member + part.members);
  };
  const auto vector = [&](const TensorRef& tensor) {
    return with_batch(call, tensor)
        .slice(3, part.begin, part.end)
        .slice(2, part.member, part.member + part.members);
  };
  const auto lists = [&](const TensorRef& tensor) {
    const TensorRef own = with_batch(call, tensor).slice(1, part.begin, part.end);
    return call.kernel.per_query_head ? own.slice(3, part.member, part.member + 1) : own;
  };
  const auto keys = [&](const TensorRef& tensor) { return with_batch(call, tensor); };
  const auto plus_rows = [&] { return rows(split_heads(sums.plus->dq.ref(), t.q.rank() - 2, t.group())); };
  launch(kernel, nsa_one_pass_kernel,
         {{"dout", rows(call.dout)},
          {"q", rows(bound.formed("q"))},
          {"k", keys(t.k)},
          {"v", keys(t.v)},
          {"out", rows(call.out)},
          {"lse", vector(bound.formed("lse"))},
          {"dq", rows(bound.formed("dq"))},
          {"dk", keys(bound.formed("dk"))},
          {"dv", keys(bound.formed("dv"))},
          {"choice", lists(call.choice)},
          {"counts", kernel.forward.counts ? lists(call.counts) : TensorRef()},
          {"dlse", kernel.dlse ? vector(bound.formed("dlse")) : TensorRef()},
          {"scale", call.forward.scale},
          {"before", part.begin},
          {"behind", t.q.size(t.q.rank() - 3) - part.end},
          {"plus_dq", sums.plus ? plus_rows() : TensorRef()},
          {"plus_dk", sums.plus ? keys(sums.plus->dk.ref()) : TensorRef()},
          {"plus_dv", sums.plus ? keys(sums.plus->dv.ref()) : TensorRef()},
          {"dk_sum", keys(sums.dk.ref())},
          {"dv_sum", keys(sums.dv.ref())},
          {"is_first", part.is_first},
          {"is_last", part.is_last},
          {"q_begin", call.forward.q_begin},
          {"k_begin", call.forward.k_begin},
          {"longest_q", call.forward.longest},
          {"longest_k", call.forward.longest_keys}});
}

}  // namespace

void run_one_pass(const NsaBackwardCall& call, const NsaOnePassKernel& kernel, std::int64_t tokens_of_call,
                  Launch& launch) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t tokens = t.q.size(t.q.rank() - 3), group = t.group(), members = kernel.forward.members;
  OnePassSums sums{launch.scratch(t.k.shape, f32), launch.scratch(t.v.shape, f32), {}};
  if (kernel.plus) sums.plus.emplace(window_gradients(call, launch));
  for (std::int64_t member = 0; member < group; member += members)
    for (std::int64_t begin = 0; begin == 0 || begin < tokens; begin += tokens_of_call) {
      const std::int64_t end = std::min(tokens, begin + tokens_of_call);
      run_part(call, kernel,
               {begin, end, member, members, member == 0 && begin == 0,
                member + members == group && end == tokens},
               sums, launch);
    }
}

}  // namespace tegula::ops
