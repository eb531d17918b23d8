// What a machine without a compiler can do: the common configurations of the operators.
#include "builtin/builtin.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/cpu.hpp"
#include "ops/pregenerated.hpp"
#include "ops/reference/reference.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/runtime.hpp"

namespace tegula::ops {
namespace {

// Before anything looks for a compiler, or for what one has compiled.
const TemporaryDirectory empty;
[[maybe_unused]] const int without_compiler =
    setenv("TEGULA_CXX", "none", 1) + setenv("TEGULA_CACHE_DIR", empty.path().c_str(), 1);

Tensor random(const Shape& shape, DType type, int seed) { return Tensor::random_normal(shape, type, seed); }

TEST(Builtin, HasEveryPregeneratedKernelForEveryInstructionSetThatIsBuilt) {
  std::size_t count = 0;
  for (const Isa isa : all_isas) {
    if (TEGULA_BUILTIN_OF_ONE_SET && isa != best_isa()) continue;
    for (const lang::Kernel& kernel : pregenerated(isa)) {
      const Signature signature(kernel.ir());
      const builtin::Compiled* found =
          builtin::find(codegen::without_comments(codegen::print_cpu(signature).text), isa);
      ASSERT_NE(found, nullptr) << kernel.name() << ' ' << isa_name(isa);
      EXPECT_EQ(found->blocks.size(), kernel.ir()->grids.size());
      ++count;
    }
  }
  EXPECT_EQ(builtin::table().size(), count);
}

TEST(Builtin, MultipliesWithoutCompiler) {
  for (std::int64_t n : {5, 60, 200, 600}) {
    const Tensor a = random({n, 70}, f32, 1), b = random({70, n + 3}, f32, 2);
    const Tensor c = gemm(a, b, {.target = Target::cpu()});
    const Tensor exact = formula_by_name(find_schema("gemm"), {{"a", a}, {"b", b}}, {}).at("out");
    expect_close(fmt::format("gemm {}", n), c, exact, exact, f32);
  }
}

class BuiltinAttention : public testing::TestWithParam<std::tuple<DType, int, bool>> {};

TEST_P(BuiltinAttention, RunsWithoutCompiler) {
  const auto [type, dim, causal] = GetParam();
  const std::int64_t tokens = 150;
  const Tensor q = random({1, tokens, 2, dim}, type, 1), k = random({1, tokens, 2, dim}, type, 2),
               v = random({1, tokens, 2, dim}, type, 3);
  AttentionOptions dense;
  dense.causal = causal, dense.target = Target::cpu();
  expect_close("attention", attention(q, k, v, dense).out, reference::attention(q, k, v, dense).out,
               reference::attention(q, k, v, dense, type).out, type);
  const std::vector<std::int32_t> numbers{0, 2, 1, 0, 1, 2, 0, -1, 2, 0, 1, -1};
  const Tensor indices = Tensor::from(numbers, {1, 2, 3, 2});
  BlockSparseOptions sparse;
  sparse.q_block_size = sparse.k_block_size = 64, sparse.indices = indices;
  sparse.causal = causal, sparse.target = Target::cpu();
  expect_close("block_sparse_attention", block_sparse_attention(q, k, v, sparse).out,
               reference::block_sparse_attention(q, k, v, sparse).out,
               reference::block_sparse_attention(q, k, v, sparse, type).out, type);
}

INSTANTIATE_TEST_SUITE_P(All, BuiltinAttention,
                         testing::Combine(testing::Values(f32, f16, bf16), testing::Values(64, 128),
                                          testing::Bool()),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", std::get<0>(info.param).name(),
                                              std::get<1>(info.param),
                                              std::get<2>(info.param) ? "_causal" : "");
                         });

TEST(Builtin, ChoosesBlocksWithoutCompiler) {
  const Tensor q = random({1, 2048, 2, 64}, f32, 1), k = random({1, 2048, 2, 64}, f32, 2);
  BlockScores options;
  options.q_block_size = options.k_block_size = 64, options.target = Target::cpu();
  const Tensor scores = block_scores(q, k, options),
               exact = formula_by_name(find_schema("block_scores"), {{"q", q}, {"k", k}}, {}).at("out");
  expect_close("block_scores", scores, exact, exact, f32);
  TopkBlocks choosing;
  choosing.target = Target::cpu();
  const Tensor wide = Tensor::random_uniform({1, 2, 4, 40}, f32, 3);
  EXPECT_TRUE(
      equal(topk_blocks(wide, 5, choosing),
            formula_by_name(find_schema("topk_blocks"), {{"scores", wide}}, {{"count", std::int64_t{5}}})
                .at("out")));
}

lang::Kernel users_own() {
  using namespace lang;
  return kernel("users_own", [] {
    Dim n("n");
    lang::Tensor x = input("x", {n}, f32), y = output("y", {n}, f32);
    grid(ceildiv(n, 64), [&](Index b) { copy(load(x.at(b * 64), {64}), y.at(b * 64)); });
  });
}

TEST(Builtin, OtherKernelsAreLeftToTheInterpreter) {
  EXPECT_EQ(compile(users_own()).target(), Target::interpreter());
  EXPECT_EQ(compile(pregenerated(Isa::portable).front()).target(), Target::cpu());
  try {
    compile(users_own(), Target::cpu());
    FAIL() << "not refused";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("kernel 'users_own' is neither built in nor cached"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tegula::ops
