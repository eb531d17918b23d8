#include <algorithm>
#include <bit>

#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/backward.hpp"
#include "ops/nsa/plan.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "tegula/ops/attention_backward.hpp"

namespace tegula::ops {

namespace {

constexpr int usual_extent = 64, least_extent = 16;  // of a tile of the pass over keys

std::int64_t features(const NsaKernel& f) { return std::int64_t{f.dim + f.dim_v} * f.compute.bytes(); }

// Where fragments are operands of products, or are told an observer.
std::int64_t bytes_of_score(const NsaKernel& f) { return 2 * f32.bytes() + f.compute.bytes(); }

// A second loop, over the window, has tiles of its own.
int loops(const NsaBackwardKernel& c) { return c.window ? 2 : 1; }

// Queries, with the gradients of one result or two, steps of keys, scores and the joined lists.
std::int64_t bytes_of_query_pass(const NsaBackwardKernel& c) {
  const NsaKernel& f = c.forward;
  const std::int64_t rows = f.rows(), entries = std::int64_t{f.queries} * f.width(),
                     window = c.window ? rows * f.dim_v * f.compute.bytes() : 0,
                     tables = entries * (4 + f.queries + (c.dscale ? f.queries : 0));
  return rows * features(f) + window + loops(c) * f.keys * features(f) + rows * f.keys * bytes_of_score(f) +
         tables * f32.bytes();
}

// Keys, steps of queries with two numbers each, and scores.
std::int64_t bytes_of_key_pass(const NsaBackwardKernel& c) {
  const std::int64_t rows = c.queries * c.forward.pack;
  return c.keys * features(c.forward) + loops(c) * rows * (features(c.forward) + 2 * f32.bytes()) +
         rows * c.keys * bytes_of_score(c.forward);
}

NsaBackwardKernel in_tiles(NsaBackwardKernel kernel, int extent) {
  NsaKernel& f = kernel.forward;
  kernel.keys = std::min(f.block, tile_of_blocks(f.block, extent).extent);
  kernel.queries = std::max(1, extent / f.pack);
  if (extent < usual_extent) f.keys = tile_of_blocks(f.block, std::min(f.keys, extent)).extent;
  return kernel;
}

// Steps of a row: small tiles have more. Heads that share tiles do not find their lists again. Where nothing
// fits, that of the fewest bytes comes first.
double estimate(const NsaBackwardKernel& c, bool shares_tiles) {
  constexpr double beyond = 1e12;
  const std::int64_t bytes = std::max(bytes_of_query_pass(c), bytes_of_key_pass(c));
  if (bytes > bytes_of_block) return beyond + static_cast<double>(bytes);
  return 1. / (c.queries * c.forward.pack) + (shares_tiles && c.forward.pack == 1 ? 1 : 0);
}

using TileCandidates = Candidates<NsaBackwardKernel, 6>;
void add_candidates(const NsaBackwardKernel& kernel, TileCandidates& to) {
  const NsaKernel& f = kernel.forward;
  int extent = fitting_extent(usual_extent, std::max(f.dim, f.dim_v), f.compute.bytes());
  for (; extent >= least_extent; extent /= 2) to.add(in_tiles(kernel, extent));
}

// Completes the kernel, whose forward is planned for CPUs; `tokens` is the most of a sequence. On a GPU tiles
// fit its shared memory: steps take fewer keys, and heads that find no room together have tiles of their own.
void plan_two_passes(bool on_gpu, std::int64_t tokens, NsaBackwardKernel& kernel) {
  if (!on_gpu) {
    kernel = in_tiles(kernel, usual_extent);
    return;
  }
  const bool shares_tiles = kernel.forward.pack > 1;
  TileCandidates candidates;
  add_candidates(kernel, candidates);
  if (shares_tiles) {
    NsaBackwardKernel apart = kernel;
    NsaKernel& f = apart.forward;
    const NsaPlan alone = plan_nsa({.tokens = tokens, .block = f.block, .entries = f.entries}, {});
    f.pack = f.members = 1, f.queries = alone.queries, f.keys = alone.keys;
    add_candidates(apart, candidates);
  }
  kernel = best_of(candidates, [&](const NsaBackwardKernel& c) { return estimate(c, shares_tiles); });
}

void plan_lists(NsaBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  const bool packed = call.kernel.forward.varlen;
  const std::int64_t queries = t.q.size(-3), keys = t.k.size(-3),
                     longest_keys = packed ? std::min(call.forward.longest_keys, keys) : keys;
  call.kernel.chunk = rows_of_chunk(
      inverse_rows, queries, (longest_keys + call.kernel.forward.block - 1) / call.kernel.forward.block,
      counts_of_token * (queries + keys));
}

}  // namespace

NsaBackwardCall nsa_backward_call(const BoundCall& bound, const NsaSelectedBackward& op,
                                  const TensorRef& dout, const TensorRef& out) {
  NsaBackwardCall call;
  call.op = &op;
  call.forward = nsa_call(bound, op, false);
  const auto formed = [&](const TensorRef& own) { return bound.formed(bound.index_of("dout"), own); };
  call.dout = formed(dout), call.out = formed(out);
  if (op.dwindow_out) call.dwindow_out = formed(*op.dwindow_out);
  const HeadTensors& t = call.forward.tensors;
  NsaBackwardKernel& kernel = call.kernel;
  kernel.forward = call.forward.kernel;
  kernel.per_query_head = call.forward.per_query_head;
  kernel.dlse = op.dlse.has_value();
  kernel.window = op.dwindow_out.has_value(), kernel.window_dlse = op.dwindow_lse.has_value();
  kernel.dscale = op.sel_scale_gradient;
  const int members_at = t.q.rank() - 1;
  const bool one = !kernel.per_query_head && call.forward.choice.size(members_at) > 1;
  auto of_heads = [&](const TensorRef& tensor) { return one ? tensor.slice(members_at, 0, 1) : tensor; };
  call.choice = of_heads(call.forward.choice);
  if (kernel.forward.counts) call.counts = of_heads(call.forward.counts);
  plan_two_passes(bound.on_gpu(), kernel.forward.varlen ? call.forward.longest : t.q.size(1), kernel);
  plan_lists(call);
  return call;
}

NsaBackwardCall nsa_backward_call(const Bound<NsaSelectedBackward>& bound) {
  return nsa_backward_call(bound.call(), *bound, bound["dout"], bound["out"]);
}

void run_two_passes(const NsaBackwardCall& call, Launch& launch) {
  note_packed_for_few_rows(call.kernel.forward.members, launch);
  const BoundCall& bound = launch.call();
  const auto formed = [&](const char* name) { return bound.has(name) ? bound.formed(name) : TensorRef(); };
  TensorRef dscale;
  if (call.kernel.dscale) {
    dscale = bound.formed("dsel_scale");
    dscale =
        split_heads(dscale, dscale.rank() - 2, call.kernel.per_query_head ? call.forward.tensors.group() : 1);
  }
  launch(call.kernel, nsa_backward_kernel,
         {{"dout", call.dout},
          {"out", call.out},
          {"choice", call.choice},
          {"counts", call.counts},
          {"scale", call.forward.scale},
          {"window_dout", call.dwindow_out},
          {"window_dlse", formed("dwindow_lse")},
          {"left", call.op->window - 1},
          {"dscale", dscale},
          {"q_begin", call.forward.q_begin},
          {"k_begin", call.forward.k_begin},
          {"longest_q", call.forward.longest},
          {"longest_k", call.forward.longest_keys}});
}

void run_nsa_backward(const NsaBackwardCall& call, Launch& launch) {
  if (!launch.call().on_gpu() || !takes_one_pass(call)) return run_two_passes(call, launch);
  const NsaOnePassKernel kernel = one_pass_kernel(call);
  run_one_pass(call, kernel, tokens_of_one_pass(call, kernel), launch);
}

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
  const std::int64_t partials = kernel.forward.width() * kernel.tiles_of_block();
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
  // The tiles of the forward and their lists do not matter here.
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

// What a run of the programs does of a call: some tokens, and some heads of every group.
struct OnePassRange {
  std::int64_t begin, end, member, members;
  bool is_first, is_last;
};

struct OnePassSums {
  Tensor dk, dv;
  std::optional<Addends> plus;
};

void run_range(const NsaBackwardCall& call, const NsaOnePassKernel& kernel, const OnePassRange& range_of_call,
               const OnePassSums& sums, Launch& launch) {
  const HeadTensors& t = call.forward.tensors;
  const BoundCall& bound = launch.call();
  const auto rows = [&](const TensorRef& tensor) {
    return with_batch(call, tensor)
        .slice(1, range_of_call.begin, range_of_call.end)
        .slice(3, range_of_call.member, range_of_call.member + range_of_call.members);
  };
  const auto vector = [&](const TensorRef& tensor) {
    return with_batch(call, tensor)
        .slice(3, range_of_call.begin, range_of_call.end)
        .slice(2, range_of_call.member, range_of_call.member + range_of_call.members);
  };
  const auto lists = [&](const TensorRef& tensor) {
    const TensorRef own = with_batch(call, tensor).slice(1, range_of_call.begin, range_of_call.end);
    return call.kernel.per_query_head ? own.slice(3, range_of_call.member, range_of_call.member + 1) : own;
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
          {"before", range_of_call.begin},
          {"behind", t.q.size(t.q.rank() - 3) - range_of_call.end},
          {"plus_dq", sums.plus ? plus_rows() : TensorRef()},
          {"plus_dk", sums.plus ? keys(sums.plus->dk.ref()) : TensorRef()},
          {"plus_dv", sums.plus ? keys(sums.plus->dv.ref()) : TensorRef()},
          {"dk_sum", keys(sums.dk.ref())},
          {"dv_sum", keys(sums.dv.ref())},
          {"is_first", range_of_call.is_first},
          {"is_last", range_of_call.is_last},
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
      run_range(call, kernel,
                {begin, end, member, members, member == 0 && begin == 0,
                 member + members == group && end == tokens},
                sums, launch);
    }
}

}  // namespace tegula::ops
