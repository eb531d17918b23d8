#include "ops/pregenerated.hpp"

#include "ops/attention/kernel.hpp"
#include "ops/block_sparse/kernel.hpp"
#include "ops/gemm/kernel.hpp"
#include "ops/selection/kernels.hpp"

namespace tegula::ops {

namespace {

// What the plans choose for large problems.
constexpr GemmTiles gemm_tiles{256, 512, 256};
constexpr int attention_queries = 256, attention_keys = 128;

void add_gemms(std::vector<lang::Kernel>& kernels) {
  for (DType type : {f32, bf16})
    for (bool transposed : {false, true})
      kernels.push_back(
          gemm_kernel({.type = type, .out = type, .transpose_b = transposed, .tiles = gemm_tiles}));
}

void add_attention(std::vector<lang::Kernel>& kernels) {
  for (DType type : {f32, bf16})
    for (int dim : {64, 128})
      for (bool causal : {false, true})
        kernels.push_back(attention_kernel({.type = type,
                                            .dim = dim,
                                            .dim_v = dim,
                                            .queries = attention_queries,
                                            .keys = attention_keys,
                                            .right = causal}));
}

void add_sparse(std::vector<lang::Kernel>& kernels) {
  for (DType type : {f32, bf16})
    for (int dim : {64, 128})
      for (bool causal : {false, true})
        kernels.push_back(block_sparse_kernel({.type = type, .dim = dim, .dim_v = dim, .causal = causal}));
  for (int dim : {64, 128}) kernels.push_back(block_scores_kernel({.dim = dim, .rows = 128, .columns = 128}));
  kernels.push_back(topk_kernel({}));
}

}  // namespace

std::vector<lang::Kernel> pregenerated() {
  std::vector<lang::Kernel> kernels;
  add_gemms(kernels);
  add_attention(kernels);
  add_sparse(kernels);
  return kernels;
}

}  // namespace tegula::ops
