// Products over chosen blocks beside products of operands whose other blocks are 0.
#include "tegula/ops/block_sparse_gemm.hpp"

#include <cmath>

#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace block_sparse_gemm_test {

constexpr int block_m = 32, block_n = 48, block_k = 16;
constexpr std::int64_t m = 75, n = 100, k = 50, blocks_m = 3, blocks_n = 3, blocks_k = 4;

// What a mask of every third, every or no block selects.
Tensor mask_of(int every) {
  Tensor mask = Tensor::zeros({blocks_m, blocks_n, blocks_k}, boolean);
  for (std::int64_t i = 0; i < blocks_m * blocks_n * blocks_k; ++i)
    mask.data_as<bool>()[i] = every > 0 && i % every == 0;
  return mask;
}

Tensor expected(const Tensor& a, const Tensor& b, const Tensor& mask) {
  Tensor sums = Tensor::zeros({m, n}, f32);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t e = 0; e < k; ++e)
        if (mask.at<bool>(i / block_m, j / block_n, e / block_k))
          sums.at<float>(i, j) += a.at<float>(i, e) * b.at<float>(e, j);
  return sums;
}

const BlockSparseGemm of_blocks = {.block_m = block_m, .block_n = block_n, .block_k = block_k};

TEST(BlockSparseGemm, SumsTheBlocksOfAMask) {
  const Tensor a = Tensor::random_integers({m, k}, f32, 1, -4, 5),
               b = Tensor::random_integers({k, n}, f32, 2, -4, 5);
  for (const int every : {0, 1, 3, 7})
    for (const Target target : {Target::interpreter(), Target::cpu(), Target::emulated_sm90()}) {
      BlockSparseGemm options = of_blocks;
      options.target = target;
      const Tensor out = Tensor::full({m, n}, f32, NAN);
      options.out = out;
      const Tensor mask = mask_of(every);
      EXPECT_TRUE(equal(block_sparse_gemm(a, b, mask, options), expected(a, b, mask)))
          << "every " << every << " of " << target.name();
    }
}

TEST(BlockSparseGemm, DoesNotReadOtherBlocks) {
  Tensor a = Tensor::full({m, k}, f32, 1);
  const Tensor b = Tensor::full({k, n}, f32, 1);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t e = block_k; e < 2 * block_k; ++e) a.at<float>(i, e) = NAN;
  Tensor mask = mask_of(1);
  for (std::int64_t i = 0; i < blocks_m; ++i)
    for (std::int64_t j = 0; j < blocks_n; ++j) mask.at<bool>(i, j, 1) = false;
  for (const Target target : {Target::interpreter(), Target::cpu(), Target::emulated_sm90()}) {
    BlockSparseGemm options = of_blocks;
    options.target = target;
    EXPECT_TRUE(equal(block_sparse_gemm(a, b, mask, options), Tensor::full({m, n}, f32, k - block_k)));
  }
}

}  // namespace block_sparse_gemm_test
}  // namespace tegula::ops
