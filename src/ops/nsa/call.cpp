#include "ops/nsa/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/kernel.hpp"
#include "ops/nsa/plan.hpp"
#include "ops/pieces/packed_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

namespace {

// Partials take so many bytes, or as many as the queries.
constexpr std::int64_t bytes_of_queries = std::int64_t{1} << 24;
constexpr int most_partials = 257;  // of a token, for each head: the longest lists, and the token's own block
constexpr std::int64_t most_pairs = std::int64_t{1} << 31;  // of a head, which programs count
constexpr std::int64_t most_entries_by_doubling = 64;

// [(batch,) tokens, selecting heads, …] with a row for each query head; heads of a group repeat one that they
// share.
TensorRef per_query_head(const TensorRef& tensor, int heads_at, const HeadTensors& t) {
  if (tensor.size(heads_at) == t.heads) return split_heads(tensor, heads_at, t.group());
  TensorRef shared = split_heads(tensor, heads_at, 1);
  Shape shape = shared.shape;
  shape[static_cast<std::size_t>(heads_at) + 1] = t.group();
  return shared.expand(shape);
}

// Room for the entries of a row, of few sizes: each is a kernel of its own.
int capacity(std::int64_t entries) {
  if (entries > most_entries_by_doubling) return static_cast<int>((entries + 15) / 16 * 16);
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(entries)));
}

struct HeadRange {
  std::int64_t begin, end;
};

// What shares a call of a kernel that divides.
struct Division {
  std::int64_t tokens, heads;
};

std::int64_t whole_chunks(std::int64_t tokens) {
  return std::max<std::int64_t>(1, tokens / chunk_tokens) * chunk_tokens;
}

// Limits the memory of partials and keeps the queries of a head in the cache: it prefers few heads to few
// tokens.
Division division_of(const NsaCall& call) {
  const NsaKernel& kernel = call.kernel;
  const HeadTensors& t = call.tensors;
  const std::int64_t element = t.q.size(0) * t.group() * kernel.compute.bytes(),
                     of_token = std::max<std::int64_t>(1, element * kernel.partials() * t.dim_v()),
                     of_queries = std::max<std::int64_t>(1, element * t.dim()),
                     bytes = std::max(bytes_of_partials, of_queries * t.kv_heads * t.q.size(1)),
                     cached = whole_chunks(bytes_of_queries / of_queries),
                     together = whole_chunks(bytes / (of_token * t.kv_heads));
  if (2 * together >= std::min(cached, t.q.size(1))) return {together, t.kv_heads};
  const std::int64_t tokens = std::min(cached, whole_chunks(bytes / of_token));
  return {tokens, std::clamp<std::int64_t>(bytes / (of_token * tokens), 1, t.kv_heads)};
}

// What nsa_kernel makes for nsa_inverted_kernel.
struct LeftOut {
  Tensor most_of_segment;
  Tensor most_left_out, pair_begins, pair_tokens, pair_places, piece_blocks, first_pieces;  // of heads
  std::int64_t segment_tokens, segments;
};

// Tiles do not cross the ends of segments.
LeftOut make_left_out(const NsaCall& call, std::int64_t tokens_of_segment, Launch& launch) {
  const NsaKernel& c = call.kernel;
  const NsaKernel lists = lists_left_out(c);
  const HeadTensors& t = call.tensors;
  const std::int64_t batch = t.q.size(0), tokens = t.q.size(1), heads = t.kv_heads,
                     blocks = (t.k.size(1) + c.block - 1) / c.block,
                     segment = (tokens_of_segment + c.queries - 1) / c.queries * c.queries,
                     segments = (tokens + segment - 1) / segment;
  const auto made = [&](const Shape& shape) { return launch.scratch(shape, i32); };
  return {.most_of_segment = made({segments}),
          .most_left_out = made({heads, batch * ((tokens + c.queries - 1) / c.queries) * c.row_groups()}),
          .pair_begins = made({heads, batch * segments, blocks + 1}),
          .pair_tokens = made({heads, batch * tokens * lists.entries}),
          .pair_places = made({heads, batch * tokens, lists.entries}),
          .piece_blocks = made({heads, PairLists::all_pieces(batch * tokens, batch * segments, lists.entries,
                                                             longest_inverted(c))}),
          .first_pieces = made({heads, batch * segments, blocks}),
          .segment_tokens = segment,
          .segments = segments};
}

void run_inverted(const NsaCall& call, const LeftOut& left_out, std::int64_t segment, const HeadRange& heads,
                  Launch& launch) {
  const HeadTensors& t = call.tensors;
  const BoundCall& bound = launch.call();
  const std::int64_t tokens = t.q.size(1), begin = segment * left_out.segment_tokens,
                     end = std::min(tokens, begin + left_out.segment_tokens);
  const auto rows = [&](const char* name) {
    return bound.formed(name).slice(1, begin, end).slice(2, heads.begin, heads.end);
  };
  const auto of_heads = [&](const Tensor& tensor) { return tensor.ref().slice(0, heads.begin, heads.end); };
  const TensorRef out = rows("out"),
                  lse = bound.formed("lse").slice(1, heads.begin, heads.end).slice(3, begin, end);
  launch(NsaInvertedKernel{call.kernel}, nsa_inverted_kernel,
         {{"q", rows("q")},
          {"k", t.k.slice(2, heads.begin, heads.end)},
          {"v", t.v.slice(2, heads.begin, heads.end)},
          {"tile_out", out},
          {"tile_lse", lse},
          {"out", out},
          {"lse", lse},
          {"scale", call.scale},
          {"behind", tokens - end},
          {"part", segment},
          {"parts", left_out.segments},
          {"part_tokens", left_out.segment_tokens},
          {"all_tokens", tokens},
          {"most_of_part", left_out.most_of_segment},
          {"most_rest", of_heads(left_out.most_left_out)},
          {"pair_begins", of_heads(left_out.pair_begins)},
          {"pair_tokens", of_heads(left_out.pair_tokens)},
          {"pair_places", of_heads(left_out.pair_places)},
          {"piece_blocks", of_heads(left_out.piece_blocks)},
          {"first_pieces", of_heads(left_out.first_pieces)}});
}

// All tiles at once; then, for so many tokens and heads after the other, what they have left out.
void run_divided(const NsaCall& call, const Division& division, Launch& launch) {
  const HeadTensors& t = call.tensors;
  const std::int64_t tokens = t.q.size(1), heads = t.kv_heads,
                     calls = (tokens + division.tokens - 1) / division.tokens,
                     even = whole_chunks((tokens + calls - 1) / calls + chunk_tokens - 1);
  const LeftOut left_out = make_left_out(call, std::min(even, division.tokens), launch);
  launch(call.kernel, nsa_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"scale", call.scale},
          {"parts", left_out.segments},
          {"part_tokens", left_out.segment_tokens},
          {"most_of_part", left_out.most_of_segment},
          {"most_rest", left_out.most_left_out},
          {"pair_begins", left_out.pair_begins},
          {"pair_tokens", left_out.pair_tokens},
          {"pair_places", left_out.pair_places},
          {"piece_blocks", left_out.piece_blocks},
          {"first_pieces", left_out.first_pieces}});
  for (std::int64_t head = 0; head < heads; head += division.heads)
    for (std::int64_t segment = 0; segment < left_out.segments; ++segment)
      run_inverted(call, left_out, segment, {head, std::min(heads, head + division.heads)}, launch);
}

// Such products are slower by themselves, which a call cannot see.
void note_rows_of_warps(const NsaKernel& kernel, Launch& launch) {
  constexpr int few_keys = 16;
  if (kernel.block <= few_keys)
    launch.note([&] {
      return fmt::format(
          "plan: blocks of {} keys are brought and looked up one by one; blocks of 64 are faster",
          kernel.block);
    });
  if (!kernel.lists || kernel.row_runs() == kernel.row_groups()) return;
  launch.note([&] {
    return fmt::format(
        "plan: {} tokens share a tile, and a block that few of them selected is multiplied by their warps "
        "alone, with mma.sync; tokens that select the same blocks as their neighbours are faster",
        kernel.queries);
  });
}

}  // namespace

bool can_divide(const NsaCall& call) {
  const NsaKernel& kernel = call.kernel;
  const HeadTensors& t = call.tensors;
  return kernel.pack > 1 && kernel.queries > 1 && !kernel.repeats && !kernel.varlen && kernel.joined() == 1 &&
         kernel.partials() <= most_partials && t.q.size(0) * t.q.size(1) < most_pairs / kernel.partials();
}

void plan_nsa_call(const AttentionTiles& tiles, bool lists, NsaCall& call) {
  const HeadTensors& t = call.tensors;
  NsaKernel& kernel = call.kernel;
  kernel.entries = capacity(call.choice.size(-1));
  const std::int64_t tokens = kernel.varlen ? call.longest : t.q.size(1);
  const std::int64_t all_tokens = (kernel.varlen ? t.q.size(0) : t.q.size(0) * t.q.size(1)) * t.kv_heads;
  const NsaProblem problem{t.group(),      call.per_query_head, tokens,       all_tokens,    kernel.block,
                           kernel.entries, kernel.dim,          kernel.dim_v, kernel.causal, kernel.repeats};
  const NsaPlan plan = lists ? plan_nsa_on_gpu(problem, kernel.compute, tiles) : plan_nsa(problem, tiles);
  kernel.pack = plan.pack, kernel.queries = plan.queries, kernel.keys = plan.keys;
  kernel.members = plan.pack > 1 ? static_cast<int>(t.group()) : 1;
  kernel.lists = lists;
  if (lists && can_divide(call)) kernel.fewest = plan.fewest, kernel.least_gain = plan.least_gain;
  if (!kernel.divides()) return;
  const std::int64_t keys = t.k.size(1);
  kernel.chunk = rows_of_chunk(chunk_tokens, tokens, (keys + kernel.block - 1) / kernel.block,
                               pair_counts_of_token * (tokens + keys));
}

NsaCall nsa_call(const BoundCall& bound, const NsaSelectedOptions& options, bool lists) {
  NsaCall call;
  call.tensors = head_tensors(bound);
  const HeadTensors& t = call.tensors;
  call.scale = program_scale(static_cast<float>(bound.real("scale")), 0);
  NsaKernel& kernel = call.kernel;
  kernel.varlen = bound.has("cu_seqlens_q");
  if (kernel.varlen) {
    call.q_begin = bound["cu_seqlens_q"], call.k_begin = bound["cu_seqlens_k"];
    call.longest = bound.dim("longest_q"), call.longest_keys = bound.dim("longest_k");
  }
  const TensorRef indices = bound.formed("block_indices");
  call.per_query_head = indices.size(-2) != t.kv_heads;
  call.choice = per_query_head(indices, indices.rank() - 2, t);
  kernel.counts = bound.has("block_counts");
  if (kernel.counts) call.counts = per_query_head(bound.formed("block_counts"), indices.rank() - 2, t);
  kernel.type = t.q.dtype, kernel.compute = multiplied_type(t.q.dtype, bound.on_gpu());
  kernel.dim = t.dim(), kernel.dim_v = t.dim_v();
  kernel.block = options.block_size;
  kernel.causal = options.causal, kernel.diagonal = options.diagonal, kernel.repeats = options.repeats;
  plan_nsa_call(options.tiles, lists, call);
  return call;
}

void attend_nsa(const NsaCall& call, Launch& launch, std::int64_t tokens_of_call) {
  if (call.kernel.divides())
    return run_divided(
        call, tokens_of_call ? Division{tokens_of_call, call.tensors.kv_heads} : division_of(call), launch);
  note_rows_of_warps(call.kernel, launch);
  note_packed_for_few_rows(call.kernel.members, launch);
  launch(call.kernel, nsa_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"scale", call.scale},
          {"q_begin", call.q_begin},
          {"k_begin", call.k_begin},
          {"longest", call.longest}});
}

}  // namespace tegula::ops
