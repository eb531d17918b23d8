#include "ops/pregenerated.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <set>

#include "ir/kernel.hpp"
#include "ops/attention/kernel.hpp"
#include "ops/block_sparse/call.hpp"
#include "ops/products/matrix_product.hpp"
#include "ops/schema/table.hpp"
#include "ops/schema/tile_registers.hpp"

namespace tegula::ops {
namespace pregenerated_test {

std::set<std::string> names(Isa isa) {
  std::set<std::string> result;
  for (const lang::Kernel& kernel : pregenerated(isa)) result.insert(kernel.name());
  return result;
}

TEST(Pregenerated, HasNoRepetition) {
  for (const Isa isa : all_isas) EXPECT_EQ(names(isa).size(), pregenerated(isa).size());
}

TEST(Pregenerated, HasWhatCommonProductsAskFor) {
  const auto known = names(Isa::portable);
  for (std::int64_t m : {1, 16, 100, 512, 1024, 4096})
    for (std::int64_t n : {1, 64, 1000, 4096})
      for (bool transposed : {false, true}) {
        const Tensor a = Tensor::empty({m, 512}, f32);
        const Tensor b = Tensor::empty(transposed ? Shape{n, 512} : Shape{512, n}, f32);
        for (const lang::Kernel& kernel : kernels_by_name(find_schema("gemm"), {{"a", a}, {"b", b}},
                                                          {{"transpose_b", transposed}}, Target::cpu()))
          EXPECT_TRUE(known.contains(kernel.name())) << kernel.name();
      }
}

// Whatever processor made the library.
class PregeneratedFor : public testing::TestWithParam<bool> {};

TEST_P(PregeneratedFor, HasWhatCommonAttentionAsksFor) {
  const auto known = names(GetParam() ? Isa::avx512 : Isa::portable);
  const SupposedTileRegisters supposed(GetParam());
  for (DType type : {f32, f16, bf16})
    for (std::int64_t dim : {64, 128})
      for (std::int64_t tokens : {64, 100, 512, 4096})
        for (bool causal : {false, true}) {
          const Tensor x = Tensor::empty({1, tokens, 2, dim}, type);
          for (const lang::Kernel& kernel :
               kernels_by_name(find_schema("attention"), {{"q", x}, {"k", x}, {"v", x}}, {{"causal", causal}},
                               Target::cpu()))
            EXPECT_TRUE(known.contains(kernel.name())) << kernel.name();
          const Tensor indices = Tensor::empty({1, 2, (tokens + 63) / 64, 1}, i32);
          for (const lang::Kernel& kernel : kernels_by_name(
                   find_schema("block_sparse_attention"),
                   {{"q", x}, {"k", x}, {"v", x}, {"indices", indices}}, {{"causal", causal}}, Target::cpu()))
            EXPECT_TRUE(known.contains(kernel.name())) << kernel.name();
        }
}

INSTANTIATE_TEST_SUITE_P(TileRegisters, PregeneratedFor, testing::Bool());

// The same program under a name that is not built in.
Function compiled_anew(const lang::Kernel& kernel) {
  auto renamed = std::make_shared<ir::Kernel>(*kernel.ir());
  renamed->name += "_anew";
  return compile(std::shared_ptr<const ir::Kernel>(renamed), Target::cpu());
}

// Runs both with the same inputs; `results` are what they write.
void expect_same(const lang::Kernel& kernel, const std::function<std::vector<Argument>(int which)>& arguments,
                 const std::array<std::vector<Tensor>, 2>& results) {
  compile(kernel, Target::cpu()).call_in_order(arguments(0));
  compiled_anew(kernel).call_in_order(arguments(1));
  for (std::size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(equal(results[0][i], results[1][i])) << kernel.name() << " result " << i;
}

TEST(Pregenerated, ProductsEqualThoseCompiledAnew) {
  const Tensor a = Tensor::random_normal({1, 90, 150}, f32, 1),
               b = Tensor::random_normal({1, 150, 140}, f32, 2);
  const std::array<std::vector<Tensor>, 2> c{
      {{Tensor::zeros({1, 90, 140}, f32)}, {Tensor::zeros({1, 90, 140}, f32)}}};
  expect_same(
      gemm_kernel({.tiles = {64, 128, 128}}),
      [&](int which) {
        return std::vector<Argument>{a, b, c[static_cast<std::size_t>(which)][0]};
      },
      c);
}

TEST(Pregenerated, AttentionEqualsThatCompiledAnew) {
  const Shape queries{1, 100, 2, 1, 64}, keys{1, 100, 2, 64}, rows{1, 2, 1, 100};
  const Tensor q = Tensor::random_normal(queries, bf16, 1), k = Tensor::random_normal(keys, bf16, 2),
               v = Tensor::random_normal(keys, bf16, 3);
  std::array<std::vector<Tensor>, 2> results;
  for (auto& result : results) result = {Tensor::zeros(queries, bf16), Tensor::zeros(rows, f32)};
  const auto arguments = [&](int which, const Argument& last, std::optional<Argument> more) {
    const auto& result = results[static_cast<std::size_t>(which)];
    std::vector<Argument> list{q, k, v, result[0], result[1], last};
    if (more) list.push_back(*more);
    return list;
  };
  expect_same(
      attention_kernel({.type = bf16, .right = true}),
      [&](int which) { return arguments(which, 0.2, Argument(0)); }, results);
  const Tensor choice = Tensor::zeros({1, 2, 1, 2, 1}, i32);
  expect_same(
      block_sparse_kernel({.type = bf16}), [&](int which) { return arguments(which, choice, Argument(0.2)); },
      results);
}

}  // namespace
}  // namespace tegula::ops
