#include "ops/block_sparse/call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ops/attention/notes.hpp"
#include "ops/block_sparse/gpu_tiles.hpp"
#include "ops/block_sparse/tokens.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/lists/sorted_lists.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

constexpr int most_together = 8;  // tiles that share what they read
constexpr int small_chunk = 1024, large_chunk = 16384;

std::int64_t blocks_of(std::int64_t extent, int block) { return (extent + block - 1) / block; }

// A row of lists for every query head.
TensorRef per_query_head(const TensorRef& tensor, const HeadTensors& t) {
  if (tensor.size(1) == t.heads) return split_heads(tensor, 1, t.group());
  TensorRef shared = split_heads(tensor, 1, 1);
  Shape shape = shared.shape;
  shape[2] = t.group();
  return shared.expand(shape);
}

// Rows of a tile are the queries of a block, of several heads if that fills the tile better.
// `rows` is the most of a tile; blocks of fewer queries than `packed_below` share it with the heads of a
// group.
void plan_queries(int rows, int packed_below, BlockSparseCall& call) {
  BlockSparseKernel& kernel = call.kernel;
  const std::int64_t group = call.tensors.group();
  Candidates<int, 2> packs{1};
  if (!call.per_query_head && group <= rows) packs.add(static_cast<int>(group));
  // Heads that share a tile share its keys; a block that fills one has its own.
  kernel.pack = best_of(
      packs, [&](int pack) { return pack > 1 && kernel.q_block >= packed_below ? never : 1.0 / pack; });
  const int most = std::max(1, rows / kernel.pack);
  const auto tiles = static_cast<int>(blocks_of(kernel.q_block, most));
  const int even = static_cast<int>(blocks_of(kernel.q_block, tiles));
  // Fewer queries than a block has need no larger tile.
  const std::int64_t queries = std::max<std::int64_t>(1, call.longest);
  kernel.queries = call.tiles.queries ? std::min(call.tiles.queries, kernel.q_block)
                                      : static_cast<int>(std::min<std::int64_t>(even, queries));
}

// A tile of keys is one of the equal tiles of a block, or several whole blocks.
void plan_keys(int usual, BlockSparseCall& call) {
  BlockSparseKernel& kernel = call.kernel;
  const int block = kernel.k_block, wanted = call.tiles.keys ? call.tiles.keys : usual;
  if (block > wanted)
    kernel.keys = static_cast<int>(blocks_of(block, static_cast<int>(blocks_of(block, wanted))));
  else
    kernel.keys = wanted / block * block;
  const std::int64_t blocks = blocks_of(call.longest_keys, block);
  kernel.chunk = blocks <= small_chunk ? small_chunk : large_chunk;
}

// Two warp groups and steps of 128 keys where tensor cores multiply; what they do not take has small tiles.
void plan_on_gpu(BlockSparseCall& call) {
  BlockSparseKernel& kernel = call.kernel;
  const int dim = std::max(kernel.dim, kernel.dim_v);
  if (multiplies_by_groups(kernel)) {
    if (call.tiles.queries == 0)
      plan_tensor_rows(call);
    else
      plan_queries(most_tensor_rows(dim), most_tensor_rows(dim), call);
    if (call.tiles.keys == 0) return plan_tensor_keys(kernel);
    return plan_keys(call.tiles.keys, call);
  }
  const int rows = dim <= 128 ? 64 : 32;
  plan_queries(rows, rows, call);
  plan_keys(32, call);
}

// Lists are made by a grid of their own, so that neither producer nor consumers of a tile wait for them.
void plan_lists(BlockSparseCall& call, bool ascending) {
  BlockSparseKernel& kernel = call.kernel;
  kernel.listed = marked_blocks(blocks_of(call.longest_keys, kernel.k_block));
  kernel.ascending = ascending && !kernel.mask;
  if (call.per_query_head) return;
  kernel.together = static_cast<int>(std::clamp<std::int64_t>(call.tensors.group(), 1, most_together));
  call.choice = call.choice.slice(2, 0, 1);
  if (kernel.counts) call.counts = call.counts.slice(2, 0, 1);
}

}  // namespace

BlockSparseCall block_sparse_call(const BoundCall& bound, const BlockSparseOptions& options,
                                  bool planned_for_gpu) {
  BlockSparseCall call;
  call.tensors = head_tensors(bound);
  const HeadTensors& t = call.tensors;
  call.scale = program_scale(static_cast<float>(bound.real("scale")), options.softcap),
  call.softcap = options.softcap;
  call.tiles = options.tiles;
  BlockSparseKernel& kernel = call.kernel;
  kernel.varlen = bound.has("cu_seqlens_q");
  kernel.mask = bound.has("mask"), kernel.counts = bound.has("counts");
  if (kernel.varlen) call.q_begin = bound["cu_seqlens_q"], call.k_begin = bound["cu_seqlens_k"];
  const TensorRef& choice = bound[kernel.mask ? "mask" : "indices"];
  call.per_query_head = choice.size(1) != t.kv_heads;
  call.choice = per_query_head(choice, t);
  if (kernel.counts) call.counts = per_query_head(bound["counts"], t);
  // Where lengths are not known, the choice says what they are at most.
  call.longest = std::min(bound.dim("longest_q"), choice.size(2) * options.q_block_size);
  call.longest_keys = bound.dim("longest_k");
  if (kernel.mask) call.longest_keys = std::min(call.longest_keys, choice.size(3) * options.k_block_size);
  kernel.type = t.q.dtype, kernel.compute = multiplied_type(t.q.dtype, planned_for_gpu);
  kernel.dim = t.dim(), kernel.dim_v = t.dim_v();
  kernel.q_block = options.q_block_size, kernel.k_block = options.k_block_size;
  kernel.causal = options.causal, kernel.softcap = score_cap(options.softcap);
  if (planned_for_gpu) {
    plan_on_gpu(call);
    plan_lists(call, options.ascending);
  } else {
    const CpuBlockSparse& limits = cpu_table.block_sparse;
    plan_queries(limits.most_rows, limits.filling_block, call);
    plan_keys(limits.usual_keys, call);
  }
  return call;
}

std::int64_t rows_of_list(const BlockSparseCall& call) {
  return std::int64_t{call.kernel.q_block} * (call.per_query_head ? 1 : call.tensors.group());
}

namespace {

// Rows with one list are less than what an instruction multiplies: others fill the tile, and see other keys.
void note_few_rows(const BlockSparseCall& call, Launch& launch) {
  const std::int64_t heads = call.per_query_head ? 1 : call.tensors.group(), rows = rows_of_list(call);
  if (!multiplies_by_groups(call.kernel) || rows >= warp_group_rows) return;
  launch.note([&] {
    return fmt::format(
        "plan: {} queries of {} heads share a list of blocks, and a warp group multiplies {} rows; larger "
        "blocks of queries are faster",
        call.kernel.q_block, heads, warp_group_rows);
  });
}

}  // namespace

namespace {

// Of the lists of packed sequences; `used` is the most that may be.
struct ListRows {
  std::int64_t sequences = 0, of_each = 0, used = 0;

  explicit ListRows(const BlockSparseCall& call) {
    if (!call.kernel.varlen) return;
    const int block = call.kernel.q_block;
    sequences = call.choice.size(0), of_each = blocks_of(call.longest, block);
    used = std::min(sequences * of_each, call.tensors.q.size(-3) / block + sequences);
  }
  bool are_mostly_unused() const {
    constexpr std::int64_t most_unused = 4;  // for each that is used
    return sequences * of_each > most_unused * used;
  }
};

}  // namespace

bool has_unused_rows(const BlockSparseCall& call) { return ListRows(call).are_mostly_unused(); }

void note_unused_rows(const BlockSparseCall& call, Launch& launch) {
  const ListRows rows(call);
  if (!rows.are_mostly_unused()) return;
  launch.note([&] {
    return fmt::format(
        "plan: lists have rows for {} blocks of queries of each of {} sequences, which have {} in all at "
        "most; the others are launched, too: give lists with fewer rows, or max_seqlen_q",
        rows.of_each, rows.sequences, rows.used);
  });
}

void run_block_sparse(const BlockSparseCall& call, Launch& launch) {
  BlockSparseKernel kernel = call.kernel;
  const auto selection = kernel.listed ? as_selection(call) : std::nullopt;
  kernel.owned = kernel.listed && !selection && has_unused_rows(call);
  if (launch.call().on_gpu()) {
    note_few_rows(call, launch);
    if (selection) note_unused_rows(call, launch);
    note_scores(kernel.dim, kernel.dim_v, kernel.type, kernel.softcap, launch);
  }
  note_packed_for_few_rows(rows_of_list(call), launch);
  if (selection) return attend_tokens(*selection, call, launch);
  const Tensor owners =
      kernel.owned ? list_tiles(launch, call.q_begin, call.tensors.q.size(-3), kernel.q_block) : Tensor();
  launch(kernel, block_sparse_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"scale", call.scale},
          {"cap", call.softcap},
          {"q_begin", call.q_begin},
          {"k_begin", call.k_begin},
          {"longest_q", call.longest},
          {"longest_k", call.longest_keys},
          {"block_owners", owners}});
}

}  // namespace tegula::ops
