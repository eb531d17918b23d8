#include "ops/pregenerated.hpp"

#include "ops/attention/kernel.hpp"
#include "ops/block_sparse/kernel.hpp"
#include "ops/gemm/kernel.hpp"
#include "ops/selection/kernels.hpp"
#include "tegula/ops/attention.hpp"

namespace tegula::ops {

namespace {

using Kernels = std::vector<lang::Kernel>;

constexpr DType types[] = {f32, f16, bf16};
constexpr int dims[] = {64, 128};
// What the plans choose.
constexpr GemmTiles gemm_tiles[] = {
    {256, 512, 256}, {128, 256, 256}, {64, 128, 128}, {16, 256, 256}, {32, 64, 64}};
constexpr AttentionTiles attention_tiles[] = {{256, 128}, {64, 64}};
constexpr int block = 64;
constexpr int score_tiles[] = {64, 128};

// The demonstration: patches of 3 x 3 pixels of three colours as queries, the colours as values.
constexpr int patch = 27, colours = 3;

void add_gemms(Kernels& kernels) {
  for (const GemmTiles& tiles : gemm_tiles)
    for (bool transposed : {false, true})
      kernels.push_back(gemm_kernel({.transpose_b = transposed, .tiles = tiles}));
}

void add_attention(Kernels& kernels) {
  for (DType type : types)
    for (int dim : dims)
      for (bool causal : {false, true})
        for (const AttentionTiles& tiles : attention_tiles)
          kernels.push_back(attention_kernel({.type = type,
                                              .dim = dim,
                                              .dim_v = dim,
                                              .queries = tiles.queries,
                                              .keys = tiles.keys,
                                              .right = causal}));
}

void add_sparse(Kernels& kernels) {
  for (DType type : types)
    for (int dim : dims)
      for (bool causal : {false, true})
        kernels.push_back(block_sparse_kernel(
            {.type = type, .dim = dim, .dim_v = dim, .q_block = block, .k_block = block, .causal = causal}));
}

void add_selection(Kernels& kernels) {
  for (int dim : dims)
    for (bool causal : {false, true})
      for (int tile : score_tiles)
        kernels.push_back(block_scores_kernel({.dim = dim,
                                               .q_block = block,
                                               .k_block = block,
                                               .causal = causal,
                                               .rows = tile,
                                               .columns = tile,
                                               .summed = summed_on_cpu}));
  for (bool kept : {false, true}) kernels.push_back(topk_kernel({.first = kept, .diagonal = kept}));
}

void add_demonstration(Kernels& kernels) {
  kernels.push_back(attention_kernel({.dim = patch + 1, .dim_v = colours, .queries = 256, .keys = 64}));
  kernels.push_back(block_sparse_kernel({.dim = patch + 1, .dim_v = colours}));
  for (int rows : {16, 128})
    kernels.push_back(
        block_scores_kernel({.dim = patch + 2, .rows = rows, .columns = 128, .summed = summed_on_cpu}));
}

}  // namespace

Kernels pregenerated() {
  Kernels kernels;
  add_gemms(kernels);
  add_attention(kernels);
  add_sparse(kernels);
  add_selection(kernels);
  add_demonstration(kernels);
  return kernels;
}

}  // namespace tegula::ops
