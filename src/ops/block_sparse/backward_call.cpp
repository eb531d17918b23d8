#include "ops/block_sparse/backward_call.hpp"

#include <algorithm>

#include "ops/block_sparse/gpu_tiles.hpp"
#include "ops/block_sparse/tokens.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int least_keys = 16;    // of a tile: smaller blocks share one
constexpr int usual_extent = 64;  // of a tile, keys and queries
constexpr int most_dim_of_wide_tiles = 128;
constexpr GpuBlockSparse costs = gpu_table.block_sparse;

// The pass over keys: a tile is a block of keys or one of its equal tiles, and meets one or several blocks of
// queries.
void plan_keys(BlockSparseBackwardKernel& kernel) {
  const BlockSparseKernel& forward = kernel.forward;
  kernel.fold = std::max(1, least_keys / forward.k_block);
  const int span = kernel.fold * forward.k_block;
  kernel.keys = std::min(span, tile_of_blocks(span, std::max(usual_extent, forward.keys)).extent);
  const int queries = std::max(1, usual_extent / forward.pack);
  kernel.queries = tile_of_blocks(forward.q_block, std::max(queries, forward.queries)).extent;
}

std::int64_t lists_of(const BlockSparseBackwardCall& call) {
  return lang::ceildiv(call.forward.tensors.k.size(-3), std::int64_t{call.kernel.span()});
}

// Packed sequences have numbers of their own, each for as many rows as the longest may have.
void plan_lists(BlockSparseBackwardCall& call) {
  const HeadTensors& t = call.forward.tensors;
  const Shape& choice = call.forward.choice.shape;
  const std::int64_t packed = call.forward.kernel.varlen ? std::max<std::int64_t>(1, choice[0]) : 1;
  call.kernel.chunk = rows_of_chunk(inverse_rows, choice[3], lists_of(call),
                                    counts_of_token * (t.q.size(-3) + t.k.size(-3)) / packed);
}

// Steps per tile of keys, if all lists are full and have equal lengths.
std::int64_t steps_of_tile(const BlockSparseBackwardCall& call) {
  const BlockSparseBackwardKernel& kernel = call.kernel;
  const BlockSparseKernel& forward = kernel.forward;
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t members = forward.pack > 1 ? 1 : t.group(),
                     blocks = forward.varlen ? lang::ceildiv(t.q.size(0), std::int64_t{forward.q_block})
                                             : call.forward.choice.size(3),
                     entries = blocks * call.forward.choice.size(4);
  const std::int64_t of_block = lang::ceildiv(forward.q_block, kernel.queries);
  const std::int64_t blocks_of_step = std::max(1, kernel.queries / forward.q_block);
  return entries * members * of_block / blocks_of_step / std::max<std::int64_t>(1, lists_of(call));
}

// One pass has tiles of 128 keys, which the sums in registers allow.
bool fits_one_pass(const BlockSparseBackwardCall& call) {
  const BlockSparseKernel& forward = call.kernel.forward;
  return std::max(forward.dim, forward.dim_v) <= 128 && forward.compute.bits() == 16 &&
         forward.dim % 16 == 0 && forward.dim_v % 16 == 0 && forward.q_block % usual_extent == 0 &&
         forward.k_block % (2 * usual_extent) == 0;
}

// The cost of a tile of keys, in products. With heads that share keys, and with short lists, two passes are
// faster (64 heads, blocks of 128, TFLOPS: 49152 tokens 514 instead of 452, 8 heads a group 377 instead of
// 455; 8192 tokens 424 instead of 419, causal 272 instead of 323).
double estimate(const BlockSparseBackwardCall& call, bool one_pass) {
  const auto steps = static_cast<double>(steps_of_tile(call));
  if (!one_pass) return steps * costs.products_of_two_passes;
  if (!fits_one_pass(call) || call.forward.tensors.group() != 1) return never;
  return steps * costs.products_of_one_pass + costs.products_of_sums;
}
bool takes_one_pass(const BlockSparseBackwardCall& call) {
  return best_of(Candidates<bool, 2>{true, false}, [&](bool one_pass) { return estimate(call, one_pass); });
}

// The pass over queries by two warp groups, which read half of what two blocks of one group would, with half
// as many steps: 2 to 3 % faster. Of 128 keys in the pass over keys, 1 to 3 % slower.
bool fits_wide_tiles(const BlockSparseKernel& forward) {
  constexpr int extent = 2 * usual_extent;
  return forward.pack == 1 && forward.compute.bits() == 16 && forward.softcap == ScoreCap::none &&
         std::max(forward.dim, forward.dim_v) <= most_dim_of_wide_tiles && forward.q_block % extent == 0 &&
         forward.k_block % extent == 0;
}

// What tensor cores do not multiply has small tiles.
void plan_small_tiles(BlockSparseBackwardKernel& kernel) {
  BlockSparseKernel& forward = kernel.forward;
  const int dim = std::max(forward.dim, forward.dim_v);
  const bool shares = forward.compute.bits() == 16 && dim <= most_dim_of_128_rows;
  const int usual = dim <= 128 || shares ? usual_extent : usual_extent / 2;
  const int extent = fitting_extent(usual, dim, forward.compute.bytes());
  if (forward.q_block >= extent) forward.pack = 1;
  forward.queries = tile_of_blocks(forward.q_block, std::max(1, extent / forward.pack)).extent;
  forward.keys = tile_of_blocks(forward.k_block, extent).extent;
  kernel.queries = forward.queries;
  kernel.fold = std::max(1, least_keys / forward.k_block);
  const int span = kernel.fold * forward.k_block;
  kernel.keys = std::min(span, tile_of_blocks(span, extent).extent);
}

// Tiles of 64 rows for both passes, heads apart where a block of queries fills whole ones; small blocks of
// keys share a list, of the queries that chose some of them.
void plan_tensor_tiles(BlockSparseBackwardCall& call, bool deterministic) {
  BlockSparseBackwardKernel& kernel = call.kernel;
  plan_gradient_rows(call.forward, kernel.forward);
  plan_gradient_keys(kernel.forward);
  kernel.queries = kernel.forward.queries;
  kernel.fold = std::max(1, usual_extent / kernel.forward.k_block);
  kernel.one_pass = !deterministic && takes_one_pass(call);
  kernel.keys = kernel.one_pass ? 2 * usual_extent : usual_extent;
  if (kernel.one_pass || !fits_wide_tiles(kernel.forward)) return;
  kernel.forward.queries = kernel.forward.keys = 2 * usual_extent;
}

void plan_on_gpu(BlockSparseBackwardCall& call, bool deterministic) {
  BlockSparseBackwardKernel& kernel = call.kernel;
  const BlockSparseKernel& forward = kernel.forward;
  if (multiplies_by_groups(forward) && std::max(forward.dim, forward.dim_v) <= most_dim_of_128_rows)
    plan_tensor_tiles(call, deterministic);
  else
    plan_small_tiles(kernel);
  kernel.direct = !kernel.one_pass && forward.compute.bits() == 16;
}

// On a GPU, so that tiles of keys end together: few are divided, and the longest begin first where that pays.
void balance_keys(BlockSparseBackwardCall& call) {
  constexpr std::int64_t at_once = std::int64_t{costs.keys.blocks_of_processor} * gpu_processors;
  BlockSparseBackwardKernel& kernel = call.kernel;
  const HeadTensors& t = call.forward.tensors;
  const std::int64_t tiles = lists_of(call) * lang::ceildiv(kernel.span(), kernel.keys) * t.kv_heads *
                             (kernel.forward.varlen ? 1 : t.q.size(0));
  if (tiles == 0) return;
  const std::int64_t steps = steps_of_tile(call);
  if (!kernel.one_pass) kernel.splits = planned_splits(tiles, steps, costs.keys, 2 * gpu_processors);
  kernel.longest_first = tiles * kernel.splits > at_once && steps >= costs.many_steps;
}

}  // namespace

BlockSparseBackwardCall block_sparse_backward_call(const Bound<BlockSparseBackward>& bound,
                                                   bool planned_for_gpu) {
  BlockSparseBackwardCall call;
  call.forward = block_sparse_call(bound.call(), *bound, planned_for_gpu);
  call.kernel.forward = call.forward.kernel;
  call.kernel.per_query_head = call.forward.per_query_head;
  call.kernel.dlse = bound.has("dlse");
  if (planned_for_gpu) {
    plan_on_gpu(call, bound->deterministic);
    balance_keys(call);
  } else {
    plan_keys(call.kernel);
  }
  plan_lists(call);
  const bool one = !call.forward.per_query_head && call.forward.choice.size(2) > 1;
  call.choice = one ? call.forward.choice.slice(2, 0, 1) : call.forward.choice;
  if (call.kernel.forward.counts)
    call.counts = one ? call.forward.counts.slice(2, 0, 1) : call.forward.counts;
  return call;
}

void run_block_sparse_backward(const BlockSparseBackwardCall& call, Launch& launch) {
  const BlockSparseKernel& forward = call.kernel.forward;
  const auto selection = forward.listed ? as_selection(call) : std::nullopt;
  const bool owned = forward.listed && !selection && has_unused_rows(call.forward);
  if (launch.call().on_gpu() && !owned) note_unused_rows(call.forward, launch);
  note_packed_for_few_rows(rows_of_list(call.forward), launch);
  if (selection) return differentiate_tokens(*selection, call, launch);
  BlockSparseBackwardKernel kernel = call.kernel;
  kernel.forward.owned = owned;
  kernel.longest_first = kernel.longest_first && !owned;
  const HeadTensors& t = call.forward.tensors;
  const auto owners = [&](const TensorRef& begin, std::int64_t tokens, int of_each) {
    return owned ? list_tiles(launch, begin, tokens, of_each) : Tensor();
  };
  const Tensor blocks = owners(call.forward.q_begin, t.q.size(-3), forward.q_block),
               spans = owners(call.forward.k_begin, t.k.size(-3), kernel.span());
  launch(kernel, block_sparse_backward_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"scale", call.forward.scale},
          {"cap", call.forward.softcap},
          {"q_begin", call.forward.q_begin},
          {"k_begin", call.forward.k_begin},
          {"longest_q", call.forward.longest},
          {"longest_k", call.forward.longest_keys},
          {"block_owners", blocks},
          {"span_owners", spans}});
}

}  // namespace tegula::ops
