#include <fmt/format.h>

#include "choices.hpp"
#include "measure.hpp"
#include "references.hpp"
#include "sections.hpp"
#include "tegula/ops.hpp"

namespace tegula::bench {
namespace {

constexpr std::int64_t tokens = 4096, heads = 8, dim = 64, gemm_size = 2048;
constexpr int block = 64, rounds = 11;
constexpr std::int64_t blocks = tokens / block;
constexpr std::int64_t chosen[] = {3, 6, 16, 32, 64};  // blocks of keys of a block of queries

struct Problem {
  Tensor q = Tensor::random_normal({1, tokens, heads, dim}, f32, 1);
  Tensor k = Tensor::random_normal({1, tokens, heads, dim}, f32, 2);
  Tensor v = Tensor::random_normal({1, tokens, heads, dim}, f32, 3);
  Tensor out = Tensor::empty({1, tokens, heads, dim}, f32);
  Tensor lse = Tensor::empty({1, heads, tokens}, f32);

  Work dense(bool causal) const {
    return [this, causal] {
      ops::AttentionOptions options;
      options.causal = causal, options.out = out, options.lse = lse, options.target = Target::cpu();
      ops::attention(q, k, v, options);
    };
  }
  Work sparse(const Tensor& indices) const {
    return [this, indices] {
      ops::BlockSparseOptions options;
      options.q_block_size = options.k_block_size = block, options.indices = indices;
      options.out = out, options.lse = lse, options.target = Target::cpu();
      ops::block_sparse_attention(q, k, v, options);
    };
  }
};

// The product that attention is measured by.
struct Product {
  Tensor a = Tensor::random_normal({gemm_size, gemm_size}, f32, 4);
  Tensor b = Tensor::random_normal({gemm_size, gemm_size}, f32, 5);
  Tensor c = Tensor::empty({gemm_size, gemm_size}, f32);
  Work work() const {
    return [this] {
      ops::Gemm options;
      options.out = c, options.target = Target::cpu();
      ops::gemm(a, b, options);
    };
  }
};

}  // namespace

void attention_section() {
  const Problem problem;
  const Product product;
  std::vector<Work> works{product.work(), problem.dense(false), problem.dense(true)};
  works[1]();
  check_attention(problem.q, problem.k, problem.v, problem.out, all_keys(tokens));
  works[2]();  // the causal kernel is compiled before anything is timed
  for (std::int64_t count : chosen) {
    const Tensor indices = random_choice(heads, blocks, blocks, count);
    works.push_back(problem.sparse(indices));
    works.back()();
    check_attention(problem.q, problem.k, problem.v, problem.out, chosen_blocks(indices, tokens, block));
  }
  works[0]();
  check_product(product.a, product.b, product.c);

  const Times times = interleaved(works, rounds);
  const double gemm_rate = 2e-9 * gemm_size * gemm_size * gemm_size;  // for a second
  const double work = 4e-9 * double(tokens) * tokens * heads * dim;
  fmt::print(
      "## Attention\n\nS = {}, {} heads, D = {}, f32. Operations are counted as 4 S² H D, half of that under "
      "a causal mask. The gemm rate is that of {} x {} x {} in the same run; the aim is 0.6 of it.\n\n",
      tokens, heads, dim, gemm_size, gemm_size, gemm_size);
  fmt::print("| what | ms | GFLOP/s | of the gemm rate |\n|---|---|---|---|\n");
  fmt::print("| `gemm` | {:.1f} | {:.1f} | |\n", 1e3 * times.median(0), gemm_rate / times.median(0));
  for (std::size_t i : {1, 2}) {
    const double count = i == 1 ? work : work / 2;
    fmt::print("| `attention`{} | {:.1f} | {:.1f} | {:.2f} |\n", i == 1 ? "" : ", causal",
               1e3 * times.median(i), count / times.median(i), times.ratio(0, i) * count / gemm_rate);
  }
  fmt::print(
      "\n`block_sparse_attention`, blocks of {0} x {0}, the same number of random blocks for "
      "every block of queries and head. p is the density; the time should be at most 1.3 p times the dense "
      "one.\n\n| p | ms | time / dense | (time / dense) / p |\n|---|---|---|---|\n",
      block);
  for (std::size_t i = 0; i < std::size(chosen); ++i) {
    const double p = double(chosen[i]) / blocks, ratio = times.ratio(3 + i, 1);
    fmt::print("| {:.4f} | {:.1f} | {:.3f} | {:.2f} |\n", p, 1e3 * times.median(3 + i), ratio, ratio / p);
  }
  fmt::print("\n");
}

}  // namespace tegula::bench
