// Memory that sparse calls take beside their tensors, of shapes alone: never more than dense kernels need,
// and a few numbers for every entry of their lists.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ops/attention/backward_plan.hpp"
#include "ops/block_sparse/backward_call.hpp"
#include "ops/block_sparse/tokens.hpp"
#include "ops/nsa/backward.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::ops {
namespace scratch_memory_test {

constexpr std::int64_t group = 4, dim = 64, entries = 16, parts = 64;
const std::set<std::string> results = {"out", "lse", "dq", "dk", "dv", "dscale"};

// A tensor that nobody reads or writes.
TensorRef promised(DType type, const Shape& shape) {
  return TensorRef(reinterpret_cast<void*>(std::uintptr_t{1} << 20), type, shape, Device::cpu());
}

// Bytes of what a call of the kernel makes beside results, with its dims and scalars given by their names.
double scratch_bytes(const lang::Kernel& kernel, const std::map<std::string, std::int64_t>& numbers) {
  const Signature signature(kernel.ir());
  std::vector<ir::Value> values;
  for (const ir::VariablePtr& variable : signature.variables()) {
    const auto number = numbers.find(variable->name);
    values.push_back(ir::integer_value(i64, number == numbers.end() ? -1 : number->second));
  }
  double all = 0;
  for (const ir::BufferPtr& buffer : signature.buffers()) {
    if (buffer->role == ir::Role::input || results.contains(buffer->name)) continue;
    double bytes = buffer->type.bytes();
    for (const ir::Expr& extent : buffer->shape) {
      const ir::Value value = HostExpr(extent, signature)(values);
      EXPECT_FALSE(value.invalid || value.integer < 0) << buffer->name << " of " << kernel.name();
      bytes *= static_cast<double>(value.integer);
    }
    all += bytes;
  }
  return all;
}

// A few numbers for every entry; for every token counts of chunks, and those of its rows.
double allowed(std::int64_t tokens, std::int64_t entries_of_all) {
  const std::int64_t of_token = 2 * counts_of_token + 16 + 4 * group;
  return 5.0 * static_cast<double>(entries_of_all) * i32.bytes() +
         static_cast<double>(of_token * tokens) * f32.bytes();
}

// Partials take what sums of dq in f32 would, or a fixed size whatever a call is; long lists a little more.
double allowed_of_partials(std::int64_t tokens) {
  const auto sums = static_cast<double>(tokens * group * dim * f32.bytes());
  return 1.25 * std::max(sums, static_cast<double>(bytes_of_partials));
}

class ScratchMemory : public testing::TestWithParam<std::tuple<std::int64_t, DType, Target>> {};

// What a call is given.
struct Given {
  TensorRef q, k, lse;
  std::map<std::string, std::int64_t> numbers;

  Given(DType type, std::int64_t tokens)
      : q(promised(type, {1, tokens, group, dim})),
        k(promised(type, {1, tokens, 1, dim})),
        lse(promised(f32, {1, group, tokens})),
        numbers{{"batch", 1},           {"queries", tokens},
                {"tokens", tokens},     {"keys", tokens},
                {"kv_heads", 1},        {"group", group},
                {"entries", entries},   {"parts", parts},
                {"all_tokens", tokens}, {"part_tokens", tokens / parts}} {}
};

void expect_one_pass_fits(const NsaBackwardCall& call, Given in, double most) {
  const NsaOnePassKernel kernel = one_pass_kernel(call);
  const std::int64_t tokens = std::exchange(in.numbers["tokens"], tokens_of_one_pass(call, kernel));
  EXPECT_LE(scratch_bytes(nsa_one_pass_kernel(kernel), in.numbers), most + allowed_of_partials(tokens));
}

TEST_P(ScratchMemory, OfGradientsOfBlocksGrowsWithTheirEntries) {
  const auto [tokens, type, target] = GetParam();
  for (const auto& [q_block, k_block] :
       {std::pair(1, 1), std::pair(1, 16), std::pair(16, 1), std::pair(1, 64), std::pair(64, 64)}) {
    SCOPED_TRACE(testing::Message() << q_block << " x " << k_block);
    const std::int64_t rows = tokens / q_block;
    Given in(type, tokens);
    in.numbers["q_blocks"] = rows;
    const BlockSparseOptions options{.q_block_size = q_block,
                                     .k_block_size = k_block,
                                     .indices = promised(i32, {1, 1, rows, entries}),
                                     .target = target};
    const PlannedCall planned(block_sparse_attention_backward_schema(),
                              BlockSparseBackward{options, {}, in.q, in.q, in.k, in.k, in.q, in.lse},
                              BoundCall::Memory::unused);
    const BlockSparseBackwardCall call =
        block_sparse_backward_call(Bound<BlockSparseBackward>(planned.bound), planned.bound.on_gpu());
    const double most = allowed(tokens, rows * entries);
    const auto selection = call.kernel.forward.listed ? as_selection(call) : std::nullopt;
    EXPECT_EQ(selection.has_value(),
              target == Target::cuda() && type == bf16 && q_block == 1 && k_block >= 16);
    if (selection)
      expect_one_pass_fits(*selection, in, most);
    else
      EXPECT_LE(scratch_bytes(block_sparse_backward_kernel(call.kernel), in.numbers), most);
  }
}

TEST_P(ScratchMemory, OfTokensGrowsWithTheirEntries) {
  const auto [tokens, type, target] = GetParam();
  const TensorRef lists = promised(i32, {1, tokens, 1, entries});
  const double most = allowed(tokens, tokens * entries);
  const Given in(type, tokens);
  for (const int block : {1, 16, 64}) {
    SCOPED_TRACE(block);
    const NsaSelectedOptions options{.block_size = block, .target = target};
    for (const bool dscale : {false, true}) {
      const PlannedCall planned(
          nsa_selected_attention_backward_schema(),
          NsaSelectedBackward{
              options, {.sel_scale_gradient = dscale}, in.q, in.q, in.k, in.k, lists, in.q, in.lse},
          BoundCall::Memory::unused);
      const NsaBackwardCall call = nsa_backward_call(Bound<NsaSelectedBackward>(planned.bound));
      if (target == Target::cuda() && takes_one_pass(call))
        expect_one_pass_fits(call, in, most);
      else
        EXPECT_LE(scratch_bytes(nsa_backward_kernel(call.kernel), in.numbers), most) << dscale;
    }
    const PlannedCall planned(nsa_selected_attention_schema(), NsaSelected{options, in.q, in.k, in.k, lists},
                              BoundCall::Memory::unused);
    const NsaCall forward = nsa_call(planned.bound, planned.op, target == Target::cuda());
    EXPECT_EQ(forward.kernel.divides(), target == Target::cuda() && type == bf16 && block == 64);
    EXPECT_LE(scratch_bytes(nsa_kernel(forward.kernel), in.numbers), most);
  }
}

// Sums of dq of 128 features, which calls of fewer take for the sake of one pass.
TEST(ScratchMemory, OfAttentionFilledUpIsBounded) {
  const auto pads = [](std::int64_t all_queries, std::int64_t packed) {
    const std::int64_t heads = 16;
    const AttentionProblem problem{.heads = heads,
                                   .group = heads,
                                   .queries = all_queries / packed,
                                   .keys = 4096,
                                   .packed = packed,
                                   .all_queries = all_queries,
                                   .dim = 80,
                                   .dim_v = 80};
    return pads_to_one_pass(problem, bf16, {}, {.deterministic = false});
  };
  for (const std::int64_t packed : {1, 8}) {
    EXPECT_TRUE(pads(4096, packed));
    EXPECT_TRUE(pads(1 << 17, packed)) << "1 GiB";
    EXPECT_FALSE(pads((1 << 17) + 8, packed));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, ScratchMemory,
    testing::Combine(testing::Values(1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 22),
                     testing::Values(bf16, f32), testing::Values(Target::cpu(), Target::cuda())));

}  // namespace
}  // namespace tegula::ops
