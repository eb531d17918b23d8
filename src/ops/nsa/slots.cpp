// Calls of nsa_slots_kernel.
#include <algorithm>
#include <bit>

#include "ops/common/functions.hpp"
#include "ops/common/scratch.hpp"
#include "ops/nsa/backward_call.hpp"
#include "ops/nsa/pair_lists.hpp"

namespace tegula::ops {

namespace {

constexpr int tile_rows = 64, tile_keys = 64, most_dim = 128;
constexpr std::int64_t small_bytes = std::int64_t{1} << 30;  // of slots that need not be divided

}  // namespace

bool can_take_slots(const NsaBackwardCall& call) {
  const NsaKernel& f = call.kernel.forward;
  const bool plain = !f.repeats && !f.varlen && !call.kernel.window && !call.kernel.dscale;
  return plain && !call.kernel.per_query_head && call.forward.tensors.group() <= tile_rows;
}

bool takes_slots(const NsaBackwardCall& call) {
  const NsaKernel& f = call.kernel.forward;
  const bool fast = f.compute.bits() == 16 && f.dim % 16 == 0 && f.dim_v % 16 == 0;
  return can_take_slots(call) && fast && std::max(f.dim, f.dim_v) <= most_dim && f.block >= tile_keys;
}

NsaSlotsKernel slots_kernel(const NsaBackwardCall& call) {
  NsaSlotsKernel kernel;
  kernel.forward = call.kernel.forward;
  NsaKernel& f = kernel.forward;
  f.members = static_cast<int>(call.forward.tensors.group());
  f.pack = static_cast<int>(std::bit_ceil(static_cast<unsigned>(f.members)));
  // The tiles of the forward have no part in it.
  f.queries = 1, f.keys = 0;
  kernel.queries = tile_rows / f.pack, kernel.keys = tile_keys;
  kernel.dlse = call.kernel.dlse;
  return kernel;
}

std::int64_t tokens_of_slots(const NsaBackwardCall& call, const NsaSlotsKernel& kernel) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t slots = (kernel.forward.entries + (kernel.forward.diagonal ? 1 : 0)) * kernel.parts();
  const std::int64_t of_token =
      std::max<std::int64_t>(1, t.q.size(0) * t.heads * t.dim() * slots * kernel.forward.compute.bytes());
  const std::int64_t bytes = std::max(small_bytes, nelements(t.q) * f32.bytes());
  return std::max<std::int64_t>(1, bytes / of_token / chunk_tokens) * chunk_tokens;
}

void run_slots(const NsaBackwardCall& call, const NsaSlotsKernel& kernel, std::int64_t tokens_of_call,
               const GradientOutputs& outputs, Target target) {
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t tokens = t.q.size(1);
  const Tensor dk_sum = scratch(t.k.shape, f32, t.k.device), dv_sum = scratch(t.v.shape, f32, t.v.device);
  const TensorRef q = split_heads(t.q, 2, t.group());
  for (std::int64_t begin = 0; begin == 0 || begin < tokens; begin += tokens_of_call) {
    const std::int64_t end = std::min(tokens, begin + tokens_of_call);
    auto rows = [&](const TensorRef& tensor) { return tensor.slice(1, begin, end); };
    auto vector = [&](const TensorRef& tensor) { return tensor.slice(3, begin, end); };
    std::vector<Argument> values{
        rows(call.inputs.dout),  rows(q),          t.k,        t.v,        rows(call.inputs.out),
        vector(call.inputs.lse), rows(outputs.dq), outputs.dk, outputs.dv, rows(call.choice),
        call.forward.scale,      tokens - end};
    if (kernel.forward.counts) values.push_back(rows(call.counts));
    if (kernel.dlse) values.push_back(vector(call.inputs.dlse));
    values.push_back(dk_sum.ref());
    values.push_back(dv_sum.ref());
    values.push_back(begin == 0);
    values.push_back(end == tokens);
    compiled(kernel, target, nsa_slots_kernel).call_in_order(values);
  }
}

}  // namespace tegula::ops
