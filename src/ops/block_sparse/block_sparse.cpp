#include <algorithm>

#include "ops/attention/sequences.hpp"
#include "ops/block_sparse/call.hpp"
#include "ops/block_sparse/check_indices.hpp"
#include "ops/block_sparse/sorted_lists.hpp"
#include "ops/block_sparse/tokens.hpp"
#include "ops/common/functions.hpp"
#include "ops/common/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int most_rows = 256;       // of a tile
constexpr int usual_keys = 64;       // of a tile
constexpr int most_together = 8;     // tiles that share what they read
constexpr int packed_q_block = 128;  // larger blocks of queries fill tiles without packing heads
constexpr int small_chunk = 1024, large_chunk = 16384;

std::int64_t blocks_of(std::int64_t extent, int block) { return (extent + block - 1) / block; }

// A choice per head of k, or of q, with a row of lists for every query head.
TensorRef per_query_head(const Arguments& args, const char* name, const TensorRef& tensor,
                         const HeadTensors& t) {
  const std::int64_t heads = tensor.size(1);
  args.check(heads == t.heads || heads == t.kv_heads, name,
             worded("{} heads, as q, or {}, as k, in dimension 1", t.heads, t.kv_heads), tensor,
             "give a row for each head");
  if (heads == t.heads) return split_heads(tensor, 1, t.group());
  TensorRef shared = split_heads(tensor, 1, 1);
  Shape shape = shared.shape;
  shape[2] = t.group();
  return shared.expand(shape);
}

// Dimensions of a choice, −1 for any; of packed sequences there may be more blocks.
void check_extents(const Arguments& args, const char* name, const TensorRef& tensor, const Shape& shape,
                   const char* meaning, bool more_blocks = false) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool more = more_blocks && d >= 2;
    args.check(shape[d] < 0 || tensor.shape[d] == shape[d] || (more && tensor.shape[d] > shape[d]), name,
               worded("{} with {}{} in dimension {}", meaning, more ? "at least " : "", shape[d], d), tensor,
               "check q_block and k_block");
  }
}

// What the longest sequence needs. Of lengths that are not known, one is at least the mean.
Shape choice_shape(const BlockSparseOptions& options, const BlockSparseCall& call) {
  const HeadTensors& t = call.tensors;
  const bool packed = call.kernel.varlen;
  const std::int64_t sequences = packed ? options.cu_seqlens_q->size(0) - 1 : t.q.size(0);
  auto least = [&](std::int64_t longest, std::int64_t most, const TensorRef& tokens) {
    const bool known = !packed || tokens.device.is_cpu() || most > 0 || sequences == 0;
    return known ? longest : blocks_of(tokens.size(-3), static_cast<int>(sequences));
  };
  return {
      sequences, -1, blocks_of(least(call.longest, options.max_seqlen_q, t.q), options.q_block),
      options.mask ? blocks_of(least(call.longest_keys, options.max_seqlen_k, t.k), options.k_block) : -1};
}

void check_counts(const Arguments& args, const TensorRef& counts, const TensorRef& indices,
                  BlockSparseCall& call) {
  args.check_tensor("counts", counts, {i32}, {3});
  check_extents(args, "counts", counts, {indices.size(0), indices.size(1), indices.size(2)},
                call.kernel.varlen ? "[sequences, heads, q_blocks]" : "[batch, heads, q_blocks]");
  call.counts = per_query_head(args, "counts", counts, call.tensors);
}

void check_choice(const Arguments& args, const BlockSparseOptions& options, BlockSparseCall& call) {
  args.check(options.indices.has_value() != options.mask.has_value(), "indices", "either indices or mask",
             options.indices ? "both" : "neither", "give one of them");
  args.check(!options.counts || options.indices, "counts", "counts with indices only", "counts with a mask",
             "leave it out");
  const bool packed = call.kernel.varlen;
  const char* name = options.mask ? "mask" : "indices";
  const std::string meaning = fmt::format("[{}, heads, q_blocks, {}]", packed ? "sequences" : "batch",
                                          options.mask ? "k_blocks" : "entries");
  const TensorRef& choice = options.mask ? *options.mask : *options.indices;
  args.check_tensor(name, choice, {options.mask ? boolean : i32}, {4});
  check_extents(args, name, choice, choice_shape(options, call), meaning.c_str(), packed);
  call.per_query_head = choice.size(1) != call.tensors.kv_heads;
  call.choice = per_query_head(args, name, choice, call.tensors);
  if (options.counts) check_counts(args, *options.counts, choice, call);
  // Where lengths are not known, the choice says what they are at most.
  call.longest = std::min(call.longest, choice.size(2) * options.q_block);
  if (options.mask) call.longest_keys = std::min(call.longest_keys, choice.size(3) * options.k_block);
}

// Rows of a tile are the queries of a block, of several heads if that fills the tile better.
// `rows` is the most of a tile; blocks of fewer queries than `packed_below` share it with the heads of a
// group.
void plan_queries(const BlockSparseOptions& options, const BlockSparseCall& call, int rows, int packed_below,
                  BlockSparseKernel& kernel) {
  const std::int64_t group = call.tensors.group();
  const TensorRef& choice = options.mask ? *options.mask : *options.indices;
  const bool shared = choice.size(1) == call.tensors.kv_heads && group > 1 && group <= rows;
  kernel.pack = shared && options.q_block < packed_below ? static_cast<int>(group) : 1;
  const int most = std::max(1, rows / kernel.pack);
  const auto tiles = static_cast<int>(blocks_of(options.q_block, most));
  const int even = static_cast<int>(blocks_of(options.q_block, tiles));
  // Fewer queries than a block has need no larger tile.
  const std::int64_t queries = std::max<std::int64_t>(1, call.longest);
  kernel.queries = options.tiles.queries ? std::min(options.tiles.queries, options.q_block)
                                         : static_cast<int>(std::min<std::int64_t>(even, queries));
}

// A tile of keys is a part of a block, in equal parts, or several whole blocks.
void plan_keys(const BlockSparseOptions& options, const BlockSparseCall& call, int usual,
               BlockSparseKernel& kernel) {
  const int block = options.k_block, wanted = options.tiles.keys ? options.tiles.keys : usual;
  if (block > wanted)
    kernel.keys = static_cast<int>(blocks_of(block, static_cast<int>(blocks_of(block, wanted))));
  else
    kernel.keys = wanted / block * block;
  const std::int64_t blocks = blocks_of(call.longest_keys, block);
  kernel.chunk = blocks <= small_chunk ? small_chunk : large_chunk;
}

// Two warp groups and steps of 128 keys where tensor cores multiply; what they do not take has small tiles.
void plan_on_gpu(const BlockSparseOptions& options, const BlockSparseCall& call, BlockSparseKernel& kernel) {
  const int dim = std::max(kernel.dim, kernel.dim_v);
  const bool fast = kernel.compute.bits() == 16 && kernel.dim % 16 == 0 && kernel.dim_v % 16 == 0;
  const int rows = fast ? (dim <= most_dim_of_128_rows ? 128 : 64) : dim <= 128 ? 64 : 32;
  plan_queries(options, call, rows, rows, kernel);
  const bool two_groups = fast && kernel.rows() == rows && dim <= 128;
  plan_keys(options, call, two_groups ? 128 : fast ? 64 : 32, kernel);
}

// Lists are made by a grid of their own, so that neither producer nor consumers of a tile wait for them.
void plan_lists(const BlockSparseOptions& options, BlockSparseCall& call) {
  BlockSparseKernel& kernel = call.kernel;
  kernel.marked = marked_blocks(blocks_of(call.longest_keys, options.k_block));
  if (call.per_query_head) return;
  kernel.one_choice = true;
  kernel.together = static_cast<int>(std::clamp<std::int64_t>(call.tensors.group(), 1, most_together));
  call.choice = call.choice.slice(2, 0, 1);
  if (kernel.counts) call.counts = call.counts.slice(2, 0, 1);
}

void check_blocks(const Arguments& args, const BlockSparseOptions& options) {
  for (auto [name, size] : {std::pair("q_block", options.q_block), std::pair("k_block", options.k_block)})
    args.check(size >= 1 && size <= 1 << 20, name, "a block size from 1 to 2^20", worded("{}", size),
               "change the block size");
}

}  // namespace

void check_block_sparse_indices(const Arguments& args, const BlockSparseCall& call,
                                const BlockSparseOptions& options) {
  if (!options.check_indices || options.mask) return;
  IndexCheck check{"indices", options.indices->transpose(1, 2)};
  if (options.counts) check.counts = options.counts->transpose(1, 2);
  check.block = options.k_block, check.keys = call.tensors.k.size(-3);
  check.heads_first = true;
  check.q_begin = options.cu_seqlens_q, check.k_begin = options.cu_seqlens_k, check.longest = call.longest;
  check.q_block = options.q_block;
  check_indices(args, check, options.target);
}

BlockSparseCall prepare_block_sparse(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                     const BlockSparseOptions& options, const char* op,
                                     std::optional<bool> for_gpu) {
  const Arguments args(op);
  check_blocks(args, options);
  check_softcap(args, options.softcap);
  check_tiles(args, options.tiles);
  BlockSparseCall call;
  call.kernel.varlen = options.cu_seqlens_q || options.cu_seqlens_k;
  call.tensors = check_heads(args, q, k, v, call.kernel.varlen ? 3 : 4, options.layout);
  const PackedLengths lengths = check_sequences(
      args, {options.cu_seqlens_q, options.cu_seqlens_k, {options.max_seqlen_q, options.max_seqlen_k}},
      call.tensors);
  call.cu_seqlens_q = options.cu_seqlens_q, call.cu_seqlens_k = options.cu_seqlens_k;
  call.longest = call.kernel.varlen ? lengths.queries : call.tensors.q.size(1);
  call.longest_keys = call.kernel.varlen ? lengths.keys : call.tensors.k.size(1);
  check_choice(args, options, call);
  call.scale = program_scale(checked_scale(args, options.scale, call.tensors.dim()), options.softcap);
  BlockSparseKernel& kernel = call.kernel;
  kernel.type = q.dtype;
  kernel.dim = call.tensors.dim(), kernel.dim_v = call.tensors.dim_v();
  kernel.q_block = options.q_block, kernel.k_block = options.k_block;
  kernel.causal = options.causal, kernel.softcap = options.softcap > 0;
  kernel.mask = options.mask.has_value(), kernel.counts = options.counts.has_value();
  const bool on_gpu = runs_on_gpu(options.target, q.device);
  kernel.compute = multiplied_type(q.dtype, on_gpu);
  kernel.listed = for_gpu.value_or(on_gpu);
  if (kernel.listed) {
    plan_on_gpu(options, call, kernel);
    plan_lists(options, call);
  } else {
    plan_queries(options, call, most_rows, packed_q_block, kernel);
    plan_keys(options, call, usual_keys, kernel);
  }
  return call;
}

void push_sequences(const BlockSparseCall& call, std::vector<Argument>& values) {
  if (!call.kernel.varlen) return;
  values.push_back(*call.cu_seqlens_q);
  values.push_back(*call.cu_seqlens_k);
  values.push_back(call.longest);
  values.push_back(call.longest_keys);
}

void run_block_sparse(const BlockSparseCall& call, const BlockSparseOptions& options,
                      const HeadOutputs& outputs) {
  const HeadTensors& t = call.tensors;
  if (call.kernel.listed) {
    if (const auto selection = as_selection(call, options.tiles))
      return attend_tokens(*selection, call, outputs, options.target);
  }
  std::vector<Argument> values{split_heads(t.q, t.q.rank() - 2, t.group()),
                               t.k,
                               t.v,
                               outputs.out,
                               outputs.lse,
                               call.choice,
                               call.scale};
  if (call.kernel.softcap) values.push_back(options.softcap);
  if (call.kernel.counts) values.push_back(call.counts);
  push_sequences(call, values);
  compiled(call.kernel, target_for(options.target, t.q.device), block_sparse_kernel).call_in_order(values);
}

AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       const BlockSparseOptions& options) {
  const Arguments args("block_sparse_attention");
  const BlockSparseCall call = prepare_block_sparse(q, k, v, options);
  check_block_sparse_indices(args, call, options);
  const HeadOutputs outputs = make_outputs(args, call.tensors, options.layout, options.out, options.lse);
  if (nelements(outputs.out) > 0) run_block_sparse(call, options, outputs);
  return outputs.result;
}

AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       int q_block_size, int k_block_size, const TensorRef& topk_indices) {
  BlockSparseOptions options;
  options.q_block = q_block_size, options.k_block = k_block_size;
  options.indices = topk_indices;
  return block_sparse_attention(q, k, v, options);
}

}  // namespace tegula::ops
