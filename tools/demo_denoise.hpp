// The two denoising methods that the demonstration compares.
#pragma once
#include "image/non_local_means.hpp"
#include "tegula/runtime.hpp"

namespace tegula::tool {

struct Denoised {
  Tensor tokens;                      // [tokens, channels]
  double seconds = 0, selection = 0;  // all of it; of the choice of blocks
  Tensor indices;                     // i32 [blocks, topk], of the sparse way
};

// The same, of tensors that are on the target's device. Results of all ways are in host memory.
image::NonLocalMeans where_it_runs(const image::NonLocalMeans& means, Target target);
// Compiles what the two ways run, so that their times are those of the work.
void compile_attention(const image::NonLocalMeans& means, std::int64_t topk, bool dense, Target target);
Denoised denoise_dense(const image::NonLocalMeans& means, Target target);
Denoised denoise_sparse(const image::NonLocalMeans& means, std::int64_t topk, Target target);

}  // namespace tegula::tool
