// On a GPU: gradients of block-sparse attention whose lists of keys are divided, and of selections that go
// through partials.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/driver.hpp"
#include "ops/registry.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/ops.hpp"
#include "tegula/stream.hpp"

namespace tegula::ops {
namespace sparse_gradients_test {

constexpr std::chrono::seconds most_time{60};  // of a test, compilation included

Tensor random_there(const Shape& shape, std::uint64_t seed) {
  return Tensor::random_normal(shape, bf16, seed).to(Device::cuda());
}

void expect_equal_in_every_run(std::int64_t kv_heads, std::int64_t entries) {
  constexpr std::int64_t tokens = 4001, blocks = 32;
  const Tensor q = random_there({1, tokens, 16, 128}, 1), k = random_there({1, tokens, kv_heads, 128}, 2),
               v = random_there({1, tokens, kv_heads, 128}, 3), dout = random_there({1, tokens, 16, 128}, 4),
               lists = Tensor::random_integers({1, kv_heads, blocks, entries}, i32, 5, -1, blocks)
                           .to(Device::cuda());
  const BlockSparseOptions options{.q_block_size = 128, .k_block_size = 128, .indices = lists.ref()};
  const AttentionResult forward = block_sparse_attention(q, k, v, options);
  const auto gradients = [&](bool deterministic) {
    const BlockSparseGradients all = block_sparse_attention_backward(
        dout, q, k, v, forward.out, forward.lse, options, {.deterministic = deterministic});
    return std::vector{all.dq.values<float>(), all.dk.values<float>(), all.dv.values<float>()};
  };
  const auto first = gradients(true), in_any_order = gradients(false);
  for (int round = 0; round < 5; ++round) EXPECT_EQ(gradients(true), first);
  for (std::size_t t = 0; t < first.size(); ++t) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < first[t].size(); ++i) {
      difference += std::pow(first[t][i] - in_any_order[t][i], 2);
      size += std::pow(first[t][i], 2);
    }
    EXPECT_LT(difference, 1e-4 * size) << "the order of the sums changes their last bits alone";
  }
}

// Few tiles of keys with long lists, which are divided.
TEST(CudaSparseGradients, AreEqualInEveryRun) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("sparse gradients in every run", most_time);
  expect_equal_in_every_run(2, 9);
}

// Where no heads share keys and lists are long, one pass computes them in any order.
TEST(CudaSparseGradients, AreTheSameInAnyOrder) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("sparse gradients in any order", most_time);
  expect_equal_in_every_run(16, 18);
}

// Compares gradients of tokens that select blocks of 64 keys with the formulas.
void expect_right(Tensors in, const OptionTexts& texts) {
  const Operator& forward = find_operator("nsa_selected_attention");
  const Operator& backward = find_operator("nsa_selected_attention_backward");
  const Tensors result = forward.reference(in, Options::parse(forward, texts));
  in.emplace("out", result.at("out").to(bf16));
  in.emplace("lse", result.at("lse").to(f32));
  in.emplace("dout", Tensor::random_normal(in.at("q").shape(), bf16, 9));
  const Options options = Options::parse(backward, texts);
  Tensors there;
  for (const auto& [name, tensor] : in) there.emplace(name, tensor.to(Device::cuda()));
  const Tensors results = backward.run(there, options, Target::cuda());
  EXPECT_EQ(faults_of(backward.judge(in, options, copied_to(Device::cpu(), results))), "");
}

class CudaSelectedGradients : public ::testing::TestWithParam<int> {};  // heads of a group

TEST_P(CudaSelectedGradients, OfRepeatedBlocks) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("gradients of repeated blocks", most_time);
  const std::int64_t heads = 2 * GetParam(), tokens = 300;
  expect_right({{"q", Tensor::random_normal({1, tokens, heads, 64}, bf16, 1)},
                {"k", Tensor::random_normal({1, tokens, 2, 64}, bf16, 2)},
                {"v", Tensor::random_normal({1, tokens, 2, 64}, bf16, 3)},
                {"block_indices", Tensor::random_integers({1, tokens, 2, 6}, i32, 4, -1, 4)}},
               {{"repeats", "true"}});
}

TEST_P(CudaSelectedGradients, OfPackedSequences) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("gradients of packed sequences", most_time);
  const std::int64_t heads = 2 * GetParam(), tokens = 500;
  const Tensor begins = Tensor::from(std::vector<std::int32_t>{0, 3, 3, 70, 430, 431, 500});
  expect_right({{"q", Tensor::random_normal({tokens, heads, 64}, bf16, 1)},
                {"k", Tensor::random_normal({tokens, 2, 64}, bf16, 2)},
                {"v", Tensor::random_normal({tokens, 2, 64}, bf16, 3)},
                {"block_indices", Tensor::random_integers({tokens, 2, 4}, i32, 4, -1, 6)},
                {"cu_seqlens_q", begins},
                {"cu_seqlens_k", begins}},
               {});
}

TEST_P(CudaSelectedGradients, AreEqualInEveryRun) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("gradients of selections in every run", most_time);
  const std::int64_t heads = 2 * GetParam(), tokens = 3001;
  const Tensor q = random_there({1, tokens, heads, 128}, 1), k = random_there({1, tokens, 2, 128}, 2),
               v = random_there({1, tokens, 2, 128}, 3), dout = random_there(q.shape(), 4),
               lists = Tensor::random_integers({1, tokens, 2, 16}, i32, 5, -1, 47).to(Device::cuda());
  for (const bool sel_scale_gradient : {false, true}) {  // through partials, and by tiles of tokens
    const NsaSelectedOptions options{.window = sel_scale_gradient ? 64 : 0};
    const NsaSelectedResult forward = nsa_selected_attention(q, k, v, lists, options);
    NsaSelectedBackwardOptions more{.sel_scale_gradient = sel_scale_gradient};
    if (sel_scale_gradient)
      more.dwindow_out = dout, more.window_out = forward.window_out, more.window_lse = forward.window_lse;
    const auto gradients = [&] {
      const NsaSelectedGradients all =
          nsa_selected_attention_backward(dout, q, k, v, lists, forward.out, forward.lse, options, more);
      std::vector result{all.dq.values<float>(), all.dk.values<float>(), all.dv.values<float>()};
      if (sel_scale_gradient) result.push_back(all.dsel_scale.values<float>());
      return result;
    };
    const auto first = gradients();
    for (int round = 0; round < 5; ++round) EXPECT_EQ(gradients(), first);
  }
}

INSTANTIATE_TEST_SUITE_P(Group, CudaSelectedGradients, ::testing::Values(1, 4, 16));

}  // namespace sparse_gradients_test
}  // namespace tegula::ops
