// On a GPU: every operator's examples against their formulas. All memory that the device hands out is filled
// with NaN before, so that what is read but not written shows.
#include "ops/testing/operators.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "cuda/driver.hpp"
#include "cuda/memory.hpp"
#include "ops/nsa/call.hpp"
#include "ops/reference/reference.hpp"
#include "ops/registry.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/error.hpp"
#include "tegula/ops.hpp"
#include "tegula/stream.hpp"

namespace tegula::ops {
namespace operators_test {

constexpr std::chrono::seconds most_time{60};  // of a row, compilation included

struct Row {
  const Operator* op;
  const Case* example;
  Target target;
  bool planted;  // inputs are within larger tensors
};

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const Operator& op : operators()) {
    for (const Case& example : op.check_cases) {
      for (const Target target : {Target::cuda(), Target::cuda_sm80()}) {
        for (const bool planted : {false, true}) result.push_back({&op, &example, target, planted});
      }
    }
  }
  return result;
}

std::string name_of(const Row& row) {
  return row.op->name + "_" + row.example->name + (row.target == Target::cuda() ? "" : "_sm80") +
         (row.planted ? "_planted" : "");
}

// The tensor on the device within a larger one of other numbers, at an odd distance from its start.
Tensor planted(const Tensor& values) {
  Shape larger = values.shape();
  for (std::int64_t& extent : larger) extent += 3;
  const bool floating = values.dtype().is_floating();
  Tensor whole = Tensor::full(larger, values.dtype(),
                              floating                      ? std::nan("")
                              : values.dtype().is_boolean() ? 1
                                                            : 1 << 20);
  Tensor inside = whole;
  for (int d = 0; d < inside.rank(); ++d) inside = inside.slice(d, 1, 1 + values.size(d));
  copy_elements(values, inside);
  Tensor there = whole.to(Device::cuda());
  for (int d = 0; d < there.rank(); ++d) there = there.slice(d, 1, 1 + values.size(d));
  return there;
}

void expect_right(const Row& row) {
  const Watchdog watchdog(name_of(row), most_time);
  const Tensors inputs = row.example->inputs(1);
  const Options options = Options::parse(*row.op, row.example->options);
  Tensors there;
  for (const auto& [name, tensor] : inputs) {
    const bool plants = row.planted && !is_record(*find_schema(row.op->name).find_tensor(name), tensor);
    there.emplace(name, plants ? planted(tensor) : tensor.to(Device::cuda()));
  }
  const Tensors results = row.op->run(there, options, row.target);
  synchronize();
  EXPECT_EQ(faults_of(row.op->judge(inputs, options, copied_to(Device::cpu(), results))), "");
}

class CudaOperators : public ::testing::TestWithParam<Row> {};

TEST_P(CudaOperators, AgreeWithTheFormula) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const cuda::PoisonedAllocations poisoned;
  expect_right(GetParam());
}

// For a checker that looks for memory that nobody wrote: it does not see what the copy engine writes, so
// these run the text for sm_80, which stores by threads.
class CudaFreshMemory : public ::testing::TestWithParam<Row> {};

TEST_P(CudaFreshMemory, AgreesWithTheFormula) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  expect_right(GetParam());
}

// Tensor cores lose what is less than 2⁻¹³ of a sum of fp8 products.
TEST(CudaGemm, SumsOfManyProductsOf8BitsAreExact) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("sums of fp8 products", most_time);
  constexpr std::int64_t inner = 1 << 16;
  for (const DType type : {e4m3, e5m2}) {
    const Tensor a = Tensor::full({130, inner}, type, 1).to(Device::cuda()),
                 b = Tensor::full({200, inner}, type, 1).to(Device::cuda());
    const Tensor out = gemm(a, b, {.transpose_b = true, .out_dtype = f32});
    for (const double x : out.values<double>()) ASSERT_EQ(x, static_cast<double>(inner));
  }
}

// One query of each of many sequences: heads share tiles, and keys are divided.
TEST(CudaAttention, TakesThePromisedLengthOfSequences) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("promised lengths", most_time);
  const cuda::PoisonedAllocations poisoned;
  const Tensor q = Tensor::random_normal({4, 16, 128}, bf16, 1),
               k = Tensor::random_normal({9000, 2, 128}, bf16, 2),
               v = Tensor::random_normal({9000, 2, 128}, bf16, 3),
               ends_q = Tensor::from<std::int32_t>({0, 1, 2, 2, 4}),
               ends_k = Tensor::from<std::int32_t>({0, 5000, 5001, 5500, 9000});
  const Tensor q_there = q.to(Device::cuda()), k_there = k.to(Device::cuda()), v_there = v.to(Device::cuda()),
               ends_q_there = ends_q.to(Device::cuda()), ends_k_there = ends_k.to(Device::cuda());
  const auto exact =
      reference::attention(q, k, v, {.causal = true, .cu_seqlens_q = ends_q, .cu_seqlens_k = ends_k});
  for (const std::int64_t most : {0, 2, 1}) {
    const AttentionResult result = attention(q_there, k_there, v_there,
                                             {.causal = true,
                                              .cu_seqlens_q = ends_q_there,
                                              .cu_seqlens_k = ends_k_there,
                                              .max_seqlen_q = most,
                                              .max_seqlen_k = 5000});
    if (most == 1) {
      EXPECT_THROW(synchronize(), ProgramError) << "the last sequence has two queries";
      continue;
    }
    synchronize();
    EXPECT_FALSE(first_difference(result.out, exact.out, 2e-2, 2e-2));
    EXPECT_FALSE(first_difference(result.lse, exact.lse, 1e-3, 1e-3));
  }
}

TEST(CudaSelection, TakesThePromisedLengthOfSequences) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("promised lengths of selections", most_time);
  const cuda::PoisonedAllocations poisoned;
  const Tensor ends = Tensor::from<std::int32_t>({0, 300, 300, 700}).to(Device::cuda());
  const Tensor q = Tensor::random_normal({700, 16, 128}, bf16, 1).to(Device::cuda()),
               k = Tensor::random_normal({700, 1, 128}, bf16, 2).to(Device::cuda()),
               v = Tensor::random_normal({700, 1, 128}, bf16, 3).to(Device::cuda()),
               blocks = Tensor::random_integers({700, 1, 3}, i32, 4, -1, 7).to(Device::cuda());
  std::vector<std::vector<double>> results;
  for (const std::int64_t most : {0, 400, 450, 399}) {
    NsaSelectedOptions options{.cu_seqlens_q = ends, .cu_seqlens_k = ends};
    options.max_seqlen_q = options.max_seqlen_k = most;
    const bool broken = most == 399;  // the last sequence has 400 tokens
    const NsaSelectedResult forward = nsa_selected_attention(q, k, v, blocks, options);
    if (broken) { EXPECT_THROW(synchronize(), ProgramError); }
    const auto gradients =
        nsa_selected_attention_backward(q, q, k, v, blocks, forward.out, forward.lse, options);
    if (broken) {
      EXPECT_THROW(synchronize(), ProgramError);
      continue;
    }
    synchronize();
    results.push_back(forward.out.values<double>());
    for (const Tensor& x : {gradients.dq, gradients.dk, gradients.dv}) {
      const std::vector<double> more = x.values<double>();
      results.back().insert(results.back().end(), more.begin(), more.end());
    }
    EXPECT_EQ(results.back(), results.front());
  }
}

// Blocks are single queries, whose lists are copied, or larger; lengths are those that lists or the call
// promise.
TEST(CudaBlockSparse, TakesThePromisedLengthOfSequences) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("promised lengths of packed block-sparse attention", most_time);
  const cuda::PoisonedAllocations poisoned;
  const Tensor fences = Tensor::from<std::int32_t>({0, 300, 300, 700});
  const Tensor q = Tensor::random_normal({700, 8, 64}, bf16, 1),
               k = Tensor::random_normal({700, 2, 64}, bf16, 2);
  const Tensor q_there = q.to(Device::cuda()), k_there = k.to(Device::cuda()),
               fences_there = fences.to(Device::cuda());
  for (const int q_block : {1, 64}) {
    const std::int64_t rows = 448 / q_block;
    const Tensor lists = Tensor::random_integers({3, 2, rows, 3}, i32, 4, -1, 7);
    BlockSparseOptions options{
        .q_block_size = q_block, .indices = lists, .cu_seqlens_q = fences, .cu_seqlens_k = fences};
    const AttentionResult exact = reference::block_sparse_attention(q, k, k, options);
    const Tensor lists_there = lists.to(Device::cuda());
    options.cu_seqlens_q = options.cu_seqlens_k = fences_there;
    for (const std::int64_t most : {0, 400, 440, 399}) {
      const bool too_short = most == 399;  // the last sequence has 400 tokens
      options.max_seqlen_q = options.max_seqlen_k = most, options.indices = lists_there;
      const auto attend = [&] { return block_sparse_attention(q_there, k_there, k_there, options); };
      const AttentionResult result = attend();
      if (too_short) {
        EXPECT_THROW(synchronize(), ProgramError);
        continue;
      }
      synchronize();
      EXPECT_FALSE(first_difference(result.out, exact.out, 2e-2, 2e-2)) << q_block << " " << most;
      EXPECT_FALSE(first_difference(result.lse, exact.lse, 1e-3, 1e-3)) << q_block << " " << most;
      if (most > 0) continue;
      const Tensor fewer = lists_there.slice(2, 0, 384 / q_block);
      options.indices = fewer;
      attend();
      EXPECT_THROW(synchronize(), ProgramError) << "rows for 384 queries";
    }
  }
}

// A call in a graph reads the lengths that stand there when the graph runs.
TEST(CudaBlockSparse, ReadsLengthsInAGraph) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("packed block-sparse attention in a graph", most_time);
  const Tensor q = Tensor::random_normal({256, 4, 64}, bf16, 1),
               k = Tensor::random_normal({256, 2, 64}, bf16, 2),
               dout = Tensor::random_normal({256, 4, 64}, bf16, 3);
  const Tensor q_there = q.to(Device::cuda()), k_there = k.to(Device::cuda()),
               dout_there = dout.to(Device::cuda()),
               where = Tensor::from<std::int32_t>({0, 128, 256}).to(Device::cuda());
  for (const int q_block : {1, 64}) {
    const Tensor lists = Tensor::random_integers({2, 2, 192 / q_block, 3}, i32, 4, -1, 4),
                 lists_there = lists.to(Device::cuda());
    BlockSparseOptions options{.q_block_size = q_block, .indices = lists_there, .causal = true};
    options.cu_seqlens_q = options.cu_seqlens_k = where;
    const AttentionResult result = block_sparse_attention(q_there, k_there, k_there, options);
    options.out = result.out, options.lse = result.lse;
    BlockSparseBackwardOptions given;
    const auto backward = [&] {
      return block_sparse_attention_backward(dout_there, q_there, k_there, k_there, result.out, result.lse,
                                             options, given);
    };
    const BlockSparseGradients gradients = backward();
    given.dq = gradients.dq, given.dk = gradients.dk, given.dv = gradients.dv;
    const Stream stream = Stream::create();
    synchronize();
    const Graph graph = Graph::capture(stream, [&] {
      block_sparse_attention(q_there, k_there, k_there, options);
      backward();
    });
    for (const int middle : {100, 64, 192}) {
      const Tensor fences = Tensor::from<std::int32_t>({0, middle, 256});
      copy_elements(fences.to(Device::cuda()), where);
      synchronize();
      graph.launch(stream);
      stream.synchronize();
      BlockSparseOptions plain = options;
      plain.indices = lists, plain.cu_seqlens_q = fences, plain.cu_seqlens_k = fences;
      const AttentionResult exact = reference::block_sparse_attention(q, k, k, plain);
      EXPECT_FALSE(first_difference(result.out, exact.out, 2e-2, 2e-2)) << q_block << " " << middle;
      const AttentionGradients exact_gradients =
          reference::block_sparse_attention_backward(dout, q, k, k, plain, std::nullopt);
      EXPECT_FALSE(first_difference(gradients.dq, exact_gradients.dq, 5e-2, 5e-2))
          << q_block << " " << middle;
      EXPECT_FALSE(first_difference(gradients.dk, exact_gradients.dk, 1e-1, 5e-2))
          << q_block << " " << middle;
      EXPECT_FALSE(first_difference(gradients.dv, exact_gradients.dv, 1e-1, 5e-2))
          << q_block << " " << middle;
    }
  }
}

TEST(CudaSelection, ChecksIndicesWhereAsked) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("checked indices", most_time);
  const Tensor q = Tensor::zeros({1, 128, 2, 64}, bf16).to(Device::cuda()),
               k = Tensor::zeros({1, 256, 2, 64}, bf16).to(Device::cuda());
  const auto attend = [&](int entry) {
    const Tensor blocks = Tensor::full({1, 2, 2, 3}, i32, entry).to(Device::cuda()),
                 of_tokens = Tensor::full({1, 128, 2, 3}, i32, entry).to(Device::cuda());
    block_sparse_attention(q, k, k, {.indices = blocks.ref(), .check_indices = true});
    nsa_selected_attention(q, k, k, of_tokens, {.check_indices = true});
  };
  EXPECT_NO_THROW(attend(-1));
  EXPECT_NO_THROW(attend(3));
  EXPECT_THROW(attend(4), ArgumentError);
  EXPECT_THROW(attend(-2), ArgumentError);
  synchronize();
}

// Three warp groups, whose warps multiply alone where tokens do not agree, beside one, which multiplies
// together.
TEST(CudaSelection, OfWarpsAgreesWithThatOfAWarpGroup) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("selections of warps", most_time);
  const cuda::PoisonedAllocations poisoned;
  const std::int64_t tokens = 8192 + 37;
  for (const auto& [heads, blocks] :
       {std::pair(16, 129), std::pair(16, 20), std::pair(16, 45), std::pair(11, 129)}) {
    const Tensor q = Tensor::random_normal({1, tokens, 2 * heads, 128}, bf16, 1).to(Device::cuda()),
                 k = Tensor::random_normal({1, tokens, 2, 128}, bf16, 2).to(Device::cuda()),
                 v = Tensor::random_normal({1, tokens, 2, 128}, bf16, 3).to(Device::cuda()),
                 lists = Tensor::random_integers({1, tokens, 2, 16}, i32, 4, -1, blocks).to(Device::cuda());
    const auto attend = [&](int queries) {
      NsaSelectedOptions options;
      options.tiles.queries = queries;
      const NsaSelectedResult result = nsa_selected_attention(q, k, v, lists, options);
      return std::pair(result.out.to(Device::cpu()), result.lse.to(Device::cpu()));
    };
    const auto one_group = attend(4), three_groups = attend(12);
    EXPECT_TRUE(all_close(three_groups.first, one_group.first, 4e-3, 2e-2)) << heads << " " << blocks;
    EXPECT_TRUE(all_close(three_groups.second, one_group.second, 1e-4, 1e-4)) << heads << " " << blocks;
    EXPECT_EQ(attend(12).first.values<float>(), three_groups.first.values<float>());
  }
}

// What tiles of one or three warp groups leave to the pass over keys, beside tiles that leave nothing.
// Heads of a group, and entries of a list, of which a fifth names blocks.
class CudaDivided : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};

TEST_P(CudaDivided, AgreesWithTilesAlone) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("selections that are divided", most_time);
  const cuda::PoisonedAllocations poisoned;
  const std::int64_t tokens = 12288 + 100, heads = GetParam().first, entries = GetParam().second;
  const Tensor q = Tensor::random_normal({1, tokens, 2 * heads, 128}, bf16, 1).to(Device::cuda()),
               k = Tensor::random_normal({1, tokens, 2, 128}, bf16, 2).to(Device::cuda()),
               v = Tensor::random_normal({1, tokens, 2, 128}, bf16, 3).to(Device::cuda()),
               lists = Tensor::random_integers({1, tokens, 2, entries}, i32, 4, -1, 5 * entries)
                           .to(Device::cuda());
  auto attend = [&](int queries, bool divided) {
    NsaSelectedOptions options;
    options.tiles.queries = queries;
    ops::PlannedCall planned(ops::nsa_selected_attention_schema(), ops::NsaSelected{options, q, k, v, lists});
    ops::NsaCall call = ops::nsa_call(planned.bound, planned.op, true);
    EXPECT_TRUE(call.kernel.divides());
    if (!divided) call.kernel.fewest = 1;
    ops::attend_nsa(call, planned.launch);
    return std::pair(planned.bound.output("out").to(Device::cpu()),
                     planned.bound.output("lse").to(Device::cpu()));
  };
  const auto one_group = static_cast<int>(64 / heads);
  const auto alone = attend(one_group, false);
  for (const int queries : {one_group, 3 * one_group, 3 * one_group}) {
    const auto divided = attend(queries, true);
    EXPECT_TRUE(all_close(divided.first, alone.first, 4e-3, 2e-2)) << queries;
    EXPECT_TRUE(all_close(divided.second, alone.second, 1e-4, 1e-4)) << queries;
  }
}

INSTANTIATE_TEST_SUITE_P(Group, CudaDivided,
                         ::testing::Values(std::pair(2, 40), std::pair(4, 40), std::pair(8, 40),
                                           std::pair(4, 170), std::pair(8, 208)));

// Many blocks of keys add to each tile of dq; vectors whose rows begin anywhere are not for the copy engine.
class CudaGradients : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(CudaGradients, AreEqualInEveryRun) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("gradients in every run", most_time);
  const Shape shape{1, GetParam(), 2, 128};
  std::vector<Tensor> in;
  for (int i = 0; i < 4; ++i)
    in.push_back(Tensor::random_normal(shape, bf16, static_cast<std::uint64_t>(i)).to(Device::cuda()));
  for (const bool causal : {false, true}) {
    const AttentionOptions options{.causal = causal};
    const AttentionResult forward = attention(in[0], in[1], in[2], options);
    const auto dq = [&](bool deterministic) {
      const AttentionBackwardOptions gradients{.deterministic = deterministic};
      return attention_backward(in[3], in[0], in[1], in[2], forward.out, forward.lse, options, gradients)
          .dq.values<float>();
    };
    const std::vector<float> first = dq(true), in_any_order = dq(false);
    for (int round = 0; round < 10; ++round) EXPECT_EQ(dq(true), first);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      difference += std::pow(first[i] - in_any_order[i], 2);
      size += std::pow(first[i], 2);
    }
    EXPECT_LT(difference, 1e-4 * size) << "the order of the sums changes their last bits alone";
  }
}

INSTANTIATE_TEST_SUITE_P(Tokens, CudaGradients, ::testing::Values(13000, 1301));

std::vector<Row> plain_rows() {
  std::vector<Row> result = rows();
  std::erase_if(result, [](const Row& row) { return row.planted || row.target == Target::cuda(); });
  return result;
}

INSTANTIATE_TEST_SUITE_P(Table, CudaFreshMemory, ::testing::ValuesIn(plain_rows()),
                         [](const auto& info) { return name_of(info.param); });
INSTANTIATE_TEST_SUITE_P(Table, CudaOperators, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tegula::ops
