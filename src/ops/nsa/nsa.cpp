#include <algorithm>
#include <bit>

#include "ops/attention/sequences.hpp"
#include "ops/block_sparse/check_indices.hpp"
#include "ops/common/functions.hpp"
#include "ops/common/plan.hpp"
#include "ops/common/scratch.hpp"
#include "ops/nsa/call.hpp"
#include "ops/nsa/plan.hpp"
#include "ops/nsa/rest.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t most_entries = 4096, longest_window = std::int64_t{1} << 29;
// Slots take so many bytes, or as many as the queries.
constexpr std::int64_t bytes_of_queries = std::int64_t{1} << 24;
constexpr int most_slots = 257;  // of a token, for each head: the longest lists, and the token's own block
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

void check_rows(const Arguments& args, const char* name, const TensorRef& tensor, const HeadTensors& t) {
  const int rank = t.q.rank();
  if (rank == 4)
    args.check(tensor.size(0) == t.q.size(0), name, worded("batch {}, as q", t.q.size(0)), tensor,
               "give both one batch");
  args.check(tensor.size(rank - 3) == t.q.size(-3), name, worded("{} tokens, as q", t.q.size(-3)), tensor,
             "check the layout");
  const std::int64_t heads = tensor.size(rank - 2);
  args.check(heads == t.heads || heads == t.kv_heads, name,
             worded("{} heads, as k, or {}, as q", t.kv_heads, t.heads), tensor, "give a row for each head");
}

void check_selection(const Arguments& args, const TensorRef& block_indices, const NsaSelectedOptions& options,
                     NsaCall& call) {
  const HeadTensors& t = call.tensors;
  const int rank = t.q.rank();
  auto ordered = [&](const TensorRef& tensor) {
    return rank == 4 ? as_bshd(tensor, options.layout) : tensor;
  };
  args.check_tensor("block_indices", block_indices, {i32}, {rank});
  const TensorRef indices = ordered(block_indices);
  check_rows(args, "block_indices", indices, t);
  args.check(indices.size(-1) <= most_entries, "block_indices",
             worded("at most {} entries of a row", most_entries), block_indices,
             "select larger blocks, or use block_sparse_attention");
  call.per_query_head = indices.size(rank - 2) != t.kv_heads;
  call.lists = indices;
  call.choice = per_query_head(indices, rank - 2, t);
  if (!options.block_counts) return;
  args.check_tensor("block_counts", *options.block_counts, {i32}, {rank - 1});
  const TensorRef counts = ordered(*options.block_counts);
  check_rows(args, "block_counts", counts, t);
  args.check(counts.size(rank - 2) == indices.size(rank - 2), "block_counts",
             worded("{} heads, as block_indices", indices.size(rank - 2)), *options.block_counts,
             "give every row of entries a count");
  call.list_lengths = counts;
  call.counts = per_query_head(counts, rank - 2, t);
}

// Room for the entries of a row, of few sizes: each is a kernel of its own.
int capacity(std::int64_t entries) {
  if (entries > most_entries_by_doubling) return static_cast<int>((entries + 15) / 16 * 16);
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(entries)));
}

struct Range {
  std::int64_t begin, end;
};

// What shares a call of a kernel that divides.
struct Division {
  std::int64_t tokens, heads;
};

std::int64_t whole_chunks(std::int64_t tokens) {
  return std::max<std::int64_t>(1, tokens / chunk_tokens) * chunk_tokens;
}

// So that slots take no more memory than they may, and queries of a head stay in the cache: rather few heads
// than few tokens.
Division division_of(const NsaCall& call) {
  const NsaKernel& kernel = call.kernel;
  const HeadTensors& t = call.tensors;
  const std::int64_t element = t.q.size(0) * t.group() * kernel.compute.bytes(),
                     of_token = std::max<std::int64_t>(1, element * kernel.slots() * t.dim_v()),
                     of_queries = std::max<std::int64_t>(1, element * t.dim()),
                     bytes = std::max(bytes_of_slots, of_queries * t.kv_heads * t.q.size(1)),
                     cached = whole_chunks(bytes_of_queries / of_queries),
                     together = whole_chunks(bytes / (of_token * t.kv_heads));
  if (2 * together >= std::min(cached, t.q.size(1))) return {together, t.kv_heads};
  const std::int64_t tokens = std::min(cached, whole_chunks(bytes / of_token));
  return {tokens, std::clamp<std::int64_t>(bytes / (of_token * tokens), 1, t.kv_heads)};
}

// What nsa_kernel makes for nsa_rest_kernel.
struct Rest {
  Tensor of_parts;
  std::vector<Tensor> of_heads;
  std::int64_t part_tokens, parts;
};

// Tiles do not cross the ends of parts.
Rest make_rest(const NsaCall& call, std::int64_t tokens_of_part) {
  const NsaKernel& c = call.kernel;
  const NsaKernel lists = lists_of_rest(c);
  const HeadTensors& t = call.tensors;
  const std::int64_t batch = t.q.size(0), tokens = t.q.size(1), heads = t.kv_heads,
                     blocks = (t.k.size(1) + c.block - 1) / c.block,
                     part = (tokens_of_part + c.queries - 1) / c.queries * c.queries,
                     parts = (tokens + part - 1) / part;
  Rest rest{scratch({parts}, i32, t.q.device), {}, part, parts};
  auto add = [&](const Shape& shape) { rest.of_heads.push_back(scratch(shape, i32, t.q.device)); };
  add({heads, batch * ((tokens + c.queries - 1) / c.queries) * c.row_groups()});
  add({heads, batch * parts, blocks + 1});
  add({heads, batch * tokens * lists.entries});
  add({heads, batch * tokens, lists.entries});
  add({heads, PairLists::all_pieces(batch * tokens, batch * parts, lists.entries, longest_of_rest(c))});
  add({heads, batch * parts, blocks});
  return rest;
}

void run_rest(const NsaCall& call, const HeadOutputs& outputs, const Rest& rest, std::int64_t part,
              const Range& heads, Target target) {
  const HeadTensors& t = call.tensors;
  const std::int64_t tokens = t.q.size(1), begin = part * rest.part_tokens,
                     end = std::min(tokens, begin + rest.part_tokens);
  auto rows = [&](const TensorRef& tensor) {
    return tensor.slice(1, begin, end).slice(2, heads.begin, heads.end);
  };
  auto keys = [&](const TensorRef& tensor) { return tensor.slice(2, heads.begin, heads.end); };
  const TensorRef out = rows(outputs.out),
                  lse = outputs.lse.slice(1, heads.begin, heads.end).slice(3, begin, end);
  std::vector<Argument> values{rows(split_heads(t.q, 2, t.group())),
                               keys(t.k),
                               keys(t.v),
                               out,
                               lse,
                               out,
                               lse,
                               call.scale,
                               tokens - end,
                               part,
                               rest.parts,
                               rest.part_tokens,
                               tokens};
  values.push_back(rest.of_parts.ref());
  for (const Tensor& tensor : rest.of_heads) values.push_back(tensor.ref().slice(0, heads.begin, heads.end));
  compiled(NsaRestKernel{call.kernel}, target, nsa_rest_kernel).call_in_order(values);
}

// All tiles at once; then, for so many tokens and heads after the other, what they have left out.
void run_divided(const NsaCall& call, const HeadOutputs& outputs, const Division& division, Target target) {
  const HeadTensors& t = call.tensors;
  const std::int64_t tokens = t.q.size(1), heads = t.kv_heads,
                     calls = (tokens + division.tokens - 1) / division.tokens,
                     even = whole_chunks((tokens + calls - 1) / calls + chunk_tokens - 1);
  const Rest rest = make_rest(call, std::min(even, division.tokens));
  std::vector<Argument> values{
      split_heads(t.q, 2, t.group()), t.k, t.v, outputs.out, outputs.lse, call.choice, call.scale};
  if (call.kernel.counts) values.push_back(call.counts);
  values.push_back(rest.parts);
  values.push_back(rest.part_tokens);
  values.push_back(rest.of_parts.ref());
  for (const Tensor& tensor : rest.of_heads) values.push_back(tensor.ref());
  compiled(call.kernel, target, nsa_kernel).call_in_order(values);
  for (std::int64_t head = 0; head < heads; head += division.heads)
    for (std::int64_t part = 0; part < rest.parts; ++part)
      run_rest(call, outputs, rest, part, {head, std::min(heads, head + division.heads)}, target);
}

}  // namespace

bool can_divide(const NsaCall& call) {
  const NsaKernel& kernel = call.kernel;
  const HeadTensors& t = call.tensors;
  return kernel.pack > 1 && kernel.queries > 1 && !kernel.repeats && !kernel.varlen && kernel.joined() == 1 &&
         kernel.slots() <= most_slots && t.q.size(0) * t.q.size(1) < most_pairs / kernel.slots();
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

AttentionOptions window_options(const NsaSelectedOptions& options) {
  AttentionOptions window;
  window.layout = options.layout;
  window.scale = options.scale;
  window.causal = true;
  window.left = options.window - 1;
  window.cu_seqlens_q = options.cu_seqlens_q, window.cu_seqlens_k = options.cu_seqlens_k;
  window.max_seqlen_q = options.max_seqlen_q, window.max_seqlen_k = options.max_seqlen_k;
  window.out = options.window_out, window.lse = options.window_lse;
  window.target = options.target;
  return window;
}

void check_nsa_indices(const Arguments& args, const NsaCall& call, const NsaSelectedOptions& options) {
  if (!options.check_indices) return;
  IndexCheck check{"block_indices", call.lists};
  if (call.kernel.counts) check.counts = call.list_lengths;
  check.block = call.kernel.block, check.keys = call.tensors.k.size(-3);
  check.q_begin = options.cu_seqlens_q, check.k_begin = options.cu_seqlens_k, check.longest = call.longest;
  check.heads_first = options.layout == Layout::bhsd;
  check_indices(args, check, options.target);
}

NsaCall prepare_nsa(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                    const TensorRef& block_indices, const NsaSelectedOptions& options, bool lists,
                    const char* op) {
  const Arguments args(op);
  NsaCall call;
  call.q = q, call.k = k, call.v = v;
  NsaKernel& kernel = call.kernel;
  args.check(options.block_size >= 1 && options.block_size <= 1 << 20, "block_size",
             "a block size from 1 to 2^20", worded("{}", options.block_size), "change the block size");
  args.check(options.window >= 0 && options.window <= longest_window, "window",
             "a number of keys, at most 2^29, or 0 for no window", worded("{}", options.window),
             "leave it out");
  check_tiles(args, options.tiles);
  kernel.varlen = options.cu_seqlens_q || options.cu_seqlens_k;
  call.tensors = check_heads(args, q, k, v, kernel.varlen ? 3 : 4, options.layout);
  const PackedLengths lengths = check_sequences(
      args, {options.cu_seqlens_q, options.cu_seqlens_k, {options.max_seqlen_q, options.max_seqlen_k}},
      call.tensors);
  call.longest = lengths.queries, call.longest_keys = lengths.keys;
  check_selection(args, block_indices, options, call);
  call.scale = program_scale(checked_scale(args, options.scale, call.tensors.dim()), 0);
  kernel.type = q.dtype;
  kernel.compute = multiplied_type(q.dtype, runs_on_gpu(options.target, q.device));
  kernel.dim = call.tensors.dim(), kernel.dim_v = call.tensors.dim_v();
  kernel.block = options.block_size;
  kernel.causal = options.causal, kernel.diagonal = options.diagonal, kernel.repeats = options.repeats;
  kernel.counts = options.block_counts.has_value();
  plan_nsa_call(options.tiles, lists, call);
  return call;
}

void attend_nsa(const NsaCall& call, const HeadOutputs& outputs, const NsaSelectedOptions& options,
                std::int64_t tokens_of_call) {
  const HeadTensors& t = call.tensors;
  const Target target = target_for(options.target, t.q.device);
  if (nelements(outputs.out) == 0) return;
  if (call.kernel.divides())
    return run_divided(call, outputs,
                       tokens_of_call ? Division{tokens_of_call, t.kv_heads} : division_of(call), target);
  std::vector<Argument> values{split_heads(t.q, t.q.rank() - 2, t.group()),
                               t.k,
                               t.v,
                               outputs.out,
                               outputs.lse,
                               call.choice,
                               call.scale};
  if (call.kernel.counts) values.push_back(call.counts);
  if (call.kernel.varlen) {
    values.push_back(*options.cu_seqlens_q);
    values.push_back(*options.cu_seqlens_k);
    values.push_back(call.longest);
  }
  compiled(call.kernel, target, nsa_kernel).call_in_order(values);
}

NsaSelectedResult run_nsa(const NsaCall& call, const NsaSelectedOptions& options,
                          std::int64_t tokens_of_call) {
  const Arguments args("nsa_selected_attention");
  const HeadTensors& t = call.tensors;
  check_nsa_indices(args, call, options);
  const HeadOutputs outputs = make_outputs(args, t, options.layout, options.out, options.lse);
  NsaSelectedResult result{outputs.result.out, outputs.result.lse, {}, {}};
  args.check(options.window > 0 || !(options.window_out || options.window_lse), "window_out",
             "no output of a window without one", "window_out or window_lse", "give the window");
  if (options.window > 0) {
    if (options.out || options.lse || options.window_out || options.window_lse)
      args.check_apart({{"out", options.out},
                        {"lse", options.lse},
                        {"window_out", options.window_out},
                        {"window_lse", options.window_lse}},
                       {{"q", call.q},
                        {"k", call.k},
                        {"v", call.v},
                        {"block_indices", call.lists},
                        {"block_counts", options.block_counts},
                        {"cu_seqlens_q", options.cu_seqlens_q},
                        {"cu_seqlens_k", options.cu_seqlens_k}});
    const AttentionResult window = attention(call.q, call.k, call.v, window_options(options));
    result.window_out = window.out, result.window_lse = window.lse;
  }
  attend_nsa(call, outputs, options, tokens_of_call);
  return result;
}

NsaSelectedResult nsa_selected_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& block_indices, const NsaSelectedOptions& options) {
  const bool lists = runs_on_gpu(options.target, q.device);
  return run_nsa(prepare_nsa(q, k, v, block_indices, options, lists), options);
}

}  // namespace tegula::ops
