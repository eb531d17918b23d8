// Tiles of products by the threads of a CPU.
#include <fmt/format.h>

#include <cstring>

#include "ops/pieces/product_plan.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/tile_registers.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace threads_test {

// Smaller tiles where threads would wait for the last block, with the same steps along k.
TEST(Gemm, PlansForTheThreadsOfACpu) {
  struct Planned {
    std::int64_t size;
    int threads, m, n;
  };
  constexpr Planned table[] = {{512, 1, 128, 256},   {512, 8, 64, 128},   {512, 16, 64, 128},
                               {512, 64, 64, 128},   {1024, 1, 256, 512}, {1024, 2, 256, 512},
                               {1024, 4, 128, 256},  {1024, 8, 128, 128}, {1024, 12, 128, 128},
                               {1024, 16, 128, 128}, {2048, 8, 256, 512}, {2048, 12, 128, 256},
                               {4096, 16, 256, 512}};
  for (const Planned& row : table) {
    ProductProblem problem{1, row.size, row.size, row.size};
    const int k = plan_product(problem, {}).tiles.k;
    problem.threads = row.threads;
    const GemmTiles tiles = plan_product(problem, {}).tiles;
    EXPECT_EQ(fmt::format("{}x{}x{}", tiles.m, tiles.n, tiles.k), fmt::format("{}x{}x{}", row.m, row.n, k))
        << row.size << " with " << row.threads << " threads";
    EXPECT_EQ(plan_product(problem, {.m = 256}).tiles.m, 256);
  }
}

// Those of products that limit their tiles: of groups, whose last tiles have few rows, and of integers.
TEST(Gemm, PlansWithinLimitsForTheThreadsOfACpu) {
  for (const int threads : {1, 2, 4, 8, 12, 16})
    for (const std::int64_t size : {512, 1024, 2048}) {
      const ProductProblem any{.m = size, .n = size, .k = size};
      ProductProblem problem = any;
      problem.threads = threads, problem.most_rows = 128, problem.most_columns = 256;
      const GemmTiles tiles = plan_product(problem, {}).tiles;
      EXPECT_LE(tiles.m, 128);
      EXPECT_LE(tiles.n, 256);
      EXPECT_EQ(tiles.k, plan_product(any, {}).tiles.k) << "the order of sums depends on the threads";
    }
  ProductProblem few{.m = 512, .n = 512, .k = 512, .threads = 12, .most_rows = 128, .most_columns = 256};
  EXPECT_EQ(plan_product(few, {}).tiles.m, 64);
}

// Where one thread runs; others are asked for by an option.
TEST(Gemm, AllOfKIsOneStepOfProductsByPairs) {
  const SupposedTileRegisters supposed(true);
  const auto name = [](const char* words) {
    const OperatorSchema& schema = find_schema("gemm");
    const ExampleCall call = ExampleCall::parse(schema, words);
    return kernels_by_name(schema, call.described(schema), call.options, Target::interpreter()).at(0).name();
  };
  EXPECT_NE(name("m=512 n=512 k=512 bf16").find("256x256x512"), std::string::npos);
  EXPECT_NE(name("m=1024 n=256 k=300 bf16 transpose_b").find("256x256x512"), std::string::npos);
  for (const char* other : {"m=512 n=512 k=512", "m=512 n=512 k=256 bf16", "m=512 n=512 k=513 bf16",
                            "m=128 n=512 k=512 bf16", "m=512 n=512 k=512 bf16 tile_k=256"})
    EXPECT_EQ(name(other).find("x512"), std::string::npos) << other;
}

TEST(Gemm, ResultsDoNotDependOnTheThreads) {
  for (DType type : {f32, bf16}) {
    const Tensor a = Tensor::random_normal({530, 520}, type, 1),
                 b = Tensor::random_normal({520, 520}, type, 2);
    const auto by = [&](int m, int n) {
      return gemm(a, b, {.tiles = {.m = m, .n = n, .k = 256}, .target = Target::cpu()});
    };
    const Tensor large = by(128, 256);
    for (const Tensor& result : {by(128, 128), by(64, 128), by(256, 512)})
      EXPECT_EQ(std::memcmp(result.data(), large.data(), large.nbytes()), 0);
  }
}

}  // namespace threads_test
}  // namespace tegula::ops
