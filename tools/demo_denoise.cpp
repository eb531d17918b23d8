#include "demo_denoise.hpp"

#include "progress.hpp"
#include "runtime/machine/thread_pool.hpp"
#include "tegula/ops.hpp"
#include "tegula/stream.hpp"

namespace tegula::tool {

namespace {

using image::block;

// Fixed, so that ranges of the queries run the kernel that all of them would.
constexpr ops::AttentionTiles dense_tiles{256, 64};
// Parts that show progress, yet keep every processor busy.
constexpr std::int64_t tiles_of_part = 8, most_scores = std::int64_t{1} << 24;

std::int64_t dense_part() { return dense_tiles.queries * tiles_of_part * thread_pool().size(); }
std::int64_t sparse_part() { return 64 * thread_pool().size(); }
std::int64_t selection_part(std::int64_t blocks) { return std::max<std::int64_t>(128, most_scores / blocks); }

void run_dense(const image::NonLocalMeans& means, const Tensor& out, std::int64_t begin, std::int64_t end,
               Target target) {
  ops::AttentionOptions options;
  options.scale = means.scale;
  options.tiles = dense_tiles;
  options.out = out.ref().slice(1, begin, end);
  options.target = target;
  ops::attention(means.q.slice(1, begin, end), means.k, means.v, options);
}

void select(const image::NonLocalMeans& means, const TensorRef& indices, std::int64_t begin, std::int64_t end,
            Target target) {
  ops::BlockScores scoring;
  scoring.q_block_size = scoring.k_block_size = static_cast<int>(block);
  scoring.scale = means.scale;
  scoring.target = target;
  const Tensor scores =
      ops::block_scores(means.selection_q.slice(1, begin * block, end * block), means.selection_k, scoring);
  ops::TopkBlocks choosing;
  choosing.out = indices.slice(2, begin, end);
  choosing.target = target;
  ops::topk_blocks(scores, indices.size(3), choosing);
}

void run_sparse(const image::NonLocalMeans& means, const TensorRef& indices, const Tensor& out,
                std::int64_t begin, std::int64_t end, Target target) {
  ops::BlockSparseOptions options;
  options.q_block_size = options.k_block_size = static_cast<int>(block);
  options.scale = means.scale;
  options.indices = indices.slice(2, begin, end);
  options.out = out.ref().slice(1, begin * block, end * block);
  options.target = target;
  ops::block_sparse_attention(means.q.slice(1, begin * block, end * block), means.k, means.v, options);
}

// work(begin, end) for ranges of [0, count).
template <class Work>
void in_ranges(Progress& progress, std::int64_t count, std::int64_t count_at_once, const Work& work) {
  for (std::int64_t begin = 0; begin < count; begin += count_at_once) {
    const std::int64_t end = std::min(count, begin + count_at_once);
    work(begin, end);
    progress.update(static_cast<double>(end) / static_cast<double>(count));
  }
}

std::int64_t blocks_of(const image::NonLocalMeans& means) { return means.k.size(1) / block; }

// Calls return before a GPU has done its work.
void wait(Target target) {
  if (target.device() == DeviceKind::cuda) synchronize(Device::cuda());
}

double seconds_to_end(const Progress& progress, Target target) {
  wait(target);
  return progress.seconds();
}

Tensor without_heads(const Tensor& out) { return out.reshape({out.size(1), out.size(3)}).to(Device::cpu()); }

}  // namespace

image::NonLocalMeans where_it_runs(const image::NonLocalMeans& means, Target target) {
  if (target.device() == DeviceKind::cpu) return means;
  image::NonLocalMeans there = means;
  for (Tensor* tensor : {&there.q, &there.k, &there.v, &there.selection_q, &there.selection_k})
    *tensor = tensor->to(Device::cuda());
  return there;
}

// Compiles by running the first ranges, because the kernel can depend on the number of queries. For dense
// attention it does so only on GPUs, where a range costs little.
void compile_attention(const image::NonLocalMeans& means, std::int64_t topk, bool dense, Target target) {
  Progress progress("compiling");
  const std::int64_t blocks = blocks_of(means), tokens = means.q.size(1);
  const Tensor out = Tensor::empty(means.v.shape(), f32, means.v.device());
  const Tensor indices = Tensor::empty({1, 1, blocks, topk}, i32, means.v.device());
  select(means, indices, 0, std::min(blocks, selection_part(blocks)), target);
  progress.update(1.0 / 3);
  run_sparse(means, indices, out, 0, std::min(blocks, sparse_part()), target);
  progress.update(2.0 / 3);
  const bool on_gpu = target.device() == DeviceKind::cuda;
  if (dense) run_dense(means, out, 0, on_gpu ? std::min(tokens, dense_part()) : 1, target);
  wait(target);
  progress.update(1);
}

Denoised denoise_dense(const image::NonLocalMeans& means, Target target) {
  Denoised result;
  const Tensor out = Tensor::empty(means.v.shape(), f32, means.v.device());
  Progress progress("dense attention");
  in_ranges(progress, means.q.size(1), dense_part(),
            [&](std::int64_t begin, std::int64_t end) { run_dense(means, out, begin, end, target); });
  result.seconds = seconds_to_end(progress, target);
  result.tokens = without_heads(out);
  return result;
}

Denoised denoise_sparse(const image::NonLocalMeans& means, std::int64_t topk, Target target) {
  Denoised result;
  const std::int64_t blocks = blocks_of(means);
  const Tensor out = Tensor::empty(means.v.shape(), f32, means.v.device()),
               indices = Tensor::empty({1, 1, blocks, topk}, i32, means.v.device());
  {
    Progress progress("selection of blocks");
    in_ranges(progress, blocks, selection_part(blocks),
              [&](std::int64_t begin, std::int64_t end) { select(means, indices, begin, end, target); });
    result.selection = seconds_to_end(progress, target);
  }
  Progress progress("sparse attention");
  in_ranges(progress, blocks, sparse_part(), [&](std::int64_t begin, std::int64_t end) {
    run_sparse(means, indices, out, begin, end, target);
  });
  result.seconds = result.selection + seconds_to_end(progress, target);
  result.tokens = without_heads(out);
  result.indices = indices.reshape({blocks, topk}).to(Device::cpu());
  return result;
}

}  // namespace tegula::tool
