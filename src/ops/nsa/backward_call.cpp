#include "ops/nsa/backward_call.hpp"

#include <algorithm>

#include "ops/nsa/plan.hpp"
#include "ops/pieces/plan.hpp"

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

}  // namespace tegula::ops
