#include "ops/decode/table.hpp"

#include <algorithm>
#include <cmath>

#include "ops/decode/sequence_list.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// Measured: 32 splits of 2 × 8192 keys take less time than 64 of half as many steps.
constexpr double merge_steps_of_split = 0.06;

}  // namespace

int plan_cache_splits(const SplitProblem& p, DType type, bool on_gpu) {
  if (on_gpu) {
    const std::int64_t seen = p.left < 0 ? p.keys : std::min(p.keys, p.left + p.queries);
    const AttentionProblem problem{.sequences = p.batch,
                                   .heads = p.heads,
                                   .queries = p.queries,
                                   .keys = p.keys,
                                   .seen = seen,
                                   .dim = p.dim,
                                   .dim_v = p.dim_v,
                                   .merge_steps_of_split = merge_steps_of_split};
    return plan_attention_on_gpu(problem, type, {p.tile_queries, p.tile_keys}).splits;
  }
  const std::int64_t blocks =
      std::max<std::int64_t>(p.batch * p.heads * ((p.queries + p.tile_queries - 1) / p.tile_queries), 1);
  return static_cast<int>(std::clamp<std::int64_t>(
      planned_processors / blocks, 1, std::max<std::int64_t>(p.keys / cpu_table.keys_of_split, 1)));
}

// Lengths are known on the device alone. With few blocks a processor the last one to be taken may be the
// longest, when all others are done; with very many it does not matter, and to count takes longer.
bool deals_longest_first(const BoundCall& call, std::int64_t blocks_of_sequence) {
  constexpr std::int64_t most_blocks_of_processor = 8, least_room = 1024;
  if (!call.on_gpu() || !call.has("cache_seqlens")) return false;
  const std::int64_t blocks = call.dim("batch") * blocks_of_sequence,
                     processors = planned_gpu_processors(call);
  return blocks > processors && blocks <= most_blocks_of_processor * processors &&
         call.dim("batch") <= SequenceList::most_sequences && call.dim("room") >= least_room;
}

// Of two or three sequences each has enough blocks.
bool shares_keys(const BoundCall& call, std::int64_t blocks_of_sequence, std::int64_t row_bytes,
                 std::int64_t least_bytes) {
  constexpr std::int64_t least_sequences = 4, blocks_of_memory = 64;
  const std::int64_t sequences = call.dim("batch");
  return call.on_gpu() && call.has("cache_seqlens") && blocks_of_sequence < blocks_of_memory &&
         sequences >= least_sequences && sequences <= SequenceList::most_sequences &&
         sequences * call.dim("room") * row_bytes >= least_bytes;
}

bool is_one_round(const BoundCall& call, std::int64_t blocks_of_sequence) {
  return call.dim("batch") * blocks_of_sequence <= planned_gpu_processors(call);
}

int shares_of_splits(const BoundCall& call, std::int64_t blocks_of_sequence, int splits) {
  const std::int64_t sequences = call.dim("batch"), processors = planned_gpu_processors(call);
  return static_cast<int>(splits > 1
                              ? sequences * splits
                              : std::clamp<std::int64_t>(processors / blocks_of_sequence, 1, sequences));
}

SequencePlaces::SequencePlaces(const BoundCall& call, std::int64_t b) {
  const bool paged = call.has("block_table");
  const std::int64_t page_size = call.dim("page_size");
  length = call.dim("room");
  if (call.has("cache_seqlens"))
    length = std::clamp<std::int64_t>(static_cast<std::int64_t>(call["cache_seqlens"].get({b})), 0, length);
  for (std::int64_t t = 0; t < length; ++t) {
    if (!paged) {
      places.emplace_back(b, t);
      continue;
    }
    const auto page = static_cast<std::int64_t>(call["block_table"].get({b, t / page_size}));
    places.emplace_back(page < call.dim("pages") ? page : -1, t % page_size);
  }
}

reference::Sight sight_of(const BoundCall& call, std::int64_t b, const SequencePlaces& sequence, bool causal,
                          std::int64_t left) {
  const std::int64_t queries = call.dim("queries"), before = sequence.length - queries;
  return [&call, &sequence, b, causal, left, before](std::int64_t i, std::vector<double>& times) {
    for (std::size_t t = 0; t < times.size(); ++t) {
      const auto key = static_cast<std::int64_t>(t), position = before + i;
      bool sees = sequence.places[t].first >= 0 && (!causal || key <= position) &&
                  (left < 0 || key >= position - left);
      if (call.has("tree_mask") && key >= before) {
        const TensorRef& mask = call["tree_mask"];
        sees = sees && mask.get({mask.size(0) == 1 ? 0 : b, i, key - before}) != 0;
      }
      times[t] = sees;
    }
  };
}

}  // namespace tegula::ops
