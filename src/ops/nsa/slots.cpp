// Calls of nsa_slots_kernel.
#include <algorithm>
#include <bit>

#include "ops/common/functions.hpp"
#include "ops/common/plan.hpp"
#include "ops/common/scratch.hpp"
#include "ops/nsa/backward_call.hpp"
#include "ops/nsa/pair_lists.hpp"

namespace tegula::ops {

namespace {

constexpr int tile_rows = 64, tile_keys = 64, most_dim = 128;
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

bool can_take_slots(const NsaBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  const bool has_pairs = nelements(t.q) > 0 && nelements(t.k) > 0;
  // The gradient of a selection's scale would come from slots, which are rounded.
  return has_pairs && !call.kernel.dscale && group_of_call(call) <= tile_rows;
}

namespace {

// Tokens whose slots take no more memory than they may; below a chunk, too few.
std::int64_t tokens_in_memory(const NsaBackwardCall& call, const NsaSlotsKernel& kernel) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t slots = kernel.forward.width() * kernel.parts();
  const std::int64_t of_token =
      std::max<std::int64_t>(1, batch_of(call) * t.kv_heads * group_of_call(call) * t.dim() * slots *
                                    kernel.forward.compute.bytes());
  return std::max(bytes_of_slots, nelements(t.q) * f32.bytes()) / of_token;
}

// Tokens of a chunk of pairs.
int chunk_of(const NsaBackwardCall& call, const NsaSlotsKernel& kernel) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t tokens = t.q.size(-3), keys = t.k.size(-3), block = kernel.forward.block,
                     longest = call.kernel.forward.varlen ? std::min(call.forward.longest_keys, keys) : keys;
  return rows_of_chunk(chunk_tokens, std::min(tokens, tokens_of_slots(call, kernel)),
                       (longest + block - 1) / block, pair_counts_of_token * (tokens + keys));
}

}  // namespace

bool takes_slots(const NsaBackwardCall& call) {
  const NsaKernel& f = call.kernel.forward;
  const bool fast = f.compute.bits() == 16 && f.dim % 16 == 0 && f.dim_v % 16 == 0;
  const bool fits = std::max(f.dim, f.dim_v) <= most_dim && f.block >= tile_keys && f.width() <= most_width;
  return can_take_slots(call) && fast && fits && tokens_in_memory(call, slots_kernel(call)) >= chunk_tokens;
}

NsaSlotsKernel slots_kernel(const NsaBackwardCall& call) {
  NsaSlotsKernel kernel;
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

std::int64_t tokens_of_slots(const NsaBackwardCall& call, const NsaSlotsKernel& kernel) {
  return std::max<std::int64_t>(1, tokens_in_memory(call, kernel) / chunk_tokens) * chunk_tokens;
}

namespace {

// The gradients of the window: rounded once before they are added.
struct Addends {
  Tensor dq, dk, dv;
};

Addends window_gradients(const NsaBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  Addends result{scratch(t.q.shape, t.q.dtype, t.q.device), scratch(t.k.shape, t.k.dtype, t.k.device),
                 scratch(t.v.shape, t.v.dtype, t.v.device)};
  const BackwardTensors& in = call.window_tensors;
  attention_backward(in.dout, t.q, t.k, t.v, in.out, in.lse, call.window_options,
                     {.dlse = in.dlse, .dq = result.dq.ref(), .dk = result.dk.ref(), .dv = result.dv.ref()});
  return result;
}

}  // namespace

void run_slots(const NsaBackwardCall& call, const NsaSlotsKernel& kernel, std::int64_t tokens_of_call,
               const GradientOutputs& outputs, Target target) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t tokens = t.q.size(t.q.rank() - 3), group = t.group();
  const bool packed = kernel.forward.varlen;
  const Tensor dk_sum = scratch(t.k.shape, f32, t.k.device), dv_sum = scratch(t.v.shape, f32, t.v.device);
  std::optional<Addends> plus;
  if (kernel.plus) plus.emplace(window_gradients(call));
  const std::int64_t members = kernel.forward.members;
  for (std::int64_t member = 0; member < group; member += members)
    for (std::int64_t begin = 0; begin == 0 || begin < tokens; begin += tokens_of_call) {
      const std::int64_t end = std::min(tokens, begin + tokens_of_call);
      auto rows = [&](const TensorRef& tensor) {
        return with_batch(call, tensor).slice(1, begin, end).slice(3, member, member + members);
      };
      auto vector = [&](const TensorRef& tensor) {
        return with_batch(call, tensor).slice(3, begin, end).slice(2, member, member + members);
      };
      auto lists = [&](const TensorRef& tensor) {
        const TensorRef own = with_batch(call, tensor).slice(1, begin, end);
        return call.kernel.per_query_head ? own.slice(3, member, member + 1) : own;
      };
      auto keys = [&](const TensorRef& tensor) { return with_batch(call, tensor); };
      const int heads_at = t.q.rank() - 2;
      std::vector<Argument> values{rows(call.inputs.dout),
                                   rows(split_heads(t.q, heads_at, group)),
                                   keys(t.k),
                                   keys(t.v),
                                   rows(call.inputs.out),
                                   vector(call.inputs.lse),
                                   rows(outputs.dq),
                                   keys(outputs.dk),
                                   keys(outputs.dv),
                                   lists(call.choice),
                                   call.forward.scale,
                                   packed ? begin : tokens - end};
      if (kernel.forward.counts) values.push_back(lists(call.counts));
      if (kernel.dlse) values.push_back(vector(call.inputs.dlse));
      if (plus) {
        values.push_back(rows(split_heads(plus->dq.ref(), heads_at, group)));
        values.push_back(keys(plus->dk.ref()));
        values.push_back(keys(plus->dv.ref()));
      }
      values.push_back(keys(dk_sum.ref()));
      values.push_back(keys(dv_sum.ref()));
      values.push_back(member == 0 && begin == 0);
      values.push_back(member + members == group && end == tokens);
      if (packed) {
        values.push_back(*call.cu_seqlens_q);
        values.push_back(*call.cu_seqlens_k);
        values.push_back(call.forward.longest);
        values.push_back(call.forward.longest_keys);
      }
      compiled(kernel, target, nsa_slots_kernel).call_in_order(values);
    }
}

}  // namespace tegula::ops
