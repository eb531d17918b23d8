#include <algorithm>

#include "ops/attention/heads.hpp"
#include "ops/common/functions.hpp"
#include "ops/common/plan.hpp"
#include "ops/selection/call.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t largest = std::int64_t{1} << 29;
// Entries of a row that may be behind all blocks: lists of calls of many lengths have one width.
constexpr std::int64_t most_padded = 4096;

std::int64_t blocks_of(std::int64_t extent, int block) { return (extent + block - 1) / block; }

void check_block(const Arguments& args, const char* name, int size) {
  args.check(size >= 1 && size <= 1 << 20, name, "a block size from 1 to 2^20", worded("{}", size),
             "change the block size");
}

// Of a GPU, whose shared memory holds the means of all blocks of a tile.
void fit_shared_memory(BlockScoresKernel& kernel) {
  while ((kernel.rows + kernel.columns) * kernel.dim * std::int64_t{f32.bytes()} > bytes_of_tiles)
    (kernel.rows > kernel.columns ? kernel.rows : kernel.columns) /= 2;
}

}  // namespace

BlockScoresCall prepare_block_scores(const TensorRef& q, const TensorRef& k,
                                     const BlockScoresOptions& options) {
  const Arguments args("block_scores");
  check_block(args, "q_block", options.q_block);
  check_block(args, "k_block", options.k_block);
  const HeadTensors t = check_heads(args, q, k, k, 4, options.layout);
  const bool joined = options.per_kv_head && t.group() > 1;
  BlockScoresCall call;
  call.q = split_heads(t.q, 2, joined ? t.group() : 1);
  call.k = t.k;
  call.scale = checked_scale(args, options.scale, t.dim());
  const std::int64_t heads = joined ? t.kv_heads : t.heads;
  call.out_shape = {t.q.size(0), heads, blocks_of(t.q.size(1), options.q_block),
                    blocks_of(t.k.size(1), options.k_block)};
  BlockScoresKernel& kernel = call.kernel;
  kernel.type = q.dtype, kernel.dim = t.dim();
  kernel.q_block = options.q_block, kernel.k_block = options.k_block;
  kernel.group = joined ? static_cast<int>(t.group()) : 1;
  kernel.causal = options.causal;
  auto tile = [](std::int64_t blocks) { return blocks <= 16 ? 16 : blocks <= 64 ? 64 : 128; };
  kernel.rows = tile(call.out_shape[2]), kernel.columns = tile(call.out_shape[3]);
  if (runs_on_gpu(options.target, q.device))
    fit_shared_memory(kernel);
  else
    kernel.summed = summed_on_cpu;
  return call;
}

Tensor block_scores(const TensorRef& q, const TensorRef& k, const BlockScoresOptions& options) {
  const BlockScoresCall call = prepare_block_scores(q, k, options);
  Tensor out =
      Arguments("block_scores")
          .output("out", options.out, call.out_shape, f32, "[batch, heads, q_blocks, k_blocks]", q.device);
  if (out.nelements() > 0)
    compiled(call.kernel, target_for(options.target, q.device), block_scores_kernel)(call.q, call.k, out,
                                                                                     call.scale);
  return out;
}

TopkKernel prepare_topk(const TensorRef& scores, std::int64_t count, const TopkBlocksOptions& options) {
  const Arguments args("topk_blocks");
  args.check_tensor("scores", scores, {f32}, {4});
  const std::int64_t most = std::max(scores.size(3), most_padded);
  args.check(count >= 0 && count <= most, "count",
             worded("a number of blocks from 0 to {}: there are {}", most, scores.size(3)),
             worded("{}", count), "choose no more than there are");
  check_block(args, "q_block", options.q_block);
  check_block(args, "k_block", options.k_block);
  args.check(options.key_offset > -largest && options.key_offset < largest, "key_offset",
             "a number below 2^29 in magnitude", worded("{}", options.key_offset), "give keys - queries");
  TopkKernel kernel;
  kernel.first = options.keep_first, kernel.diagonal = options.keep_diagonal;
  kernel.columns = scores.size(3) <= 32 ? 32 : 256;
  return kernel;
}

Tensor topk_blocks(const TensorRef& scores, std::int64_t count, const TopkBlocksOptions& options) {
  const TopkKernel kernel = prepare_topk(scores, count, options);
  const Shape& shape = scores.shape;
  const Arguments args("topk_blocks");
  Tensor out = args.output("out", options.out, {shape[0], shape[1], shape[2], count}, i32,
                           "[batch, heads, q_blocks, count]", scores.device);
  if (out.nelements() == 0) return out;
  const std::int64_t rows = shape[0] * shape[1] * shape[2];
  const auto out_rows = out.ref().try_reshape({rows, count});
  args.check(out_rows.has_value(), "out", "rows at equal distances", describe(out.ref()),
             "pass a contiguous tensor");
  const auto in_rows = scores.try_reshape({rows, shape[3]});
  const Tensor copied = in_rows ? Tensor::adopt(*in_rows, nullptr)
                                : Tensor::adopt(scores, nullptr).contiguous().reshape({rows, shape[3]});
  std::vector<Argument> values{copied, *out_rows};
  if (kernel.diagonal)
    for (std::int64_t value :
         {shape[2], std::int64_t{options.q_block}, std::int64_t{options.k_block}, options.key_offset})
      values.push_back(value);
  compiled(kernel, target_for(options.target, scores.device), topk_kernel).call_in_order(values);
  return out;
}

}  // namespace tegula::ops
