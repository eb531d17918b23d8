// Tiles of bf16 that loops compute as tile registers want them: which do, and that nothing else changes.
#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace narrow_rows_test {

using namespace lang;
using lang::Tensor;

struct Tiles {
  Fragment weights;
  Shared right;
  Fragment given, sum;
};
constexpr double tolerance = 1e-3;  // of sums of rounded numbers, in whatever order

using Steps = std::function<void(Tiles&)>;

// Weights of `rows` x k that `steps` compute of what is given, and their product with k x 32 numbers.
void product(Program& p, int rows, int k, const Steps& steps) {
  Tensor a = p.in(Data::random_integers({rows, k}, f32, 1, -9, 10)),
         b = p.in(Data::random_integers({k, 32}, bf16, 2, -9, 10)), out = p.out({rows, 32}, f32),
         later = p.out({rows, k}, f32);
  grid(1, [&](Index) {
    Tiles x{Fragment({rows, k}, bf16), Shared({k, 32}, bf16), Fragment({rows, k}, f32),
            Fragment({rows, 32}, f32, 0)};
    copy(a, x.given), copy(b, x.right);
    steps(x);
    copy(x.sum, out), copy(x.given, later);
  });
}

void multiply(Tiles& x) { gemm(x.weights, x.right, x.sum); }
void compute(Tiles& x) {
  parallel(x.weights, [&](Index i, Index j) { x.weights(i, j) = x.given(i, j) * 0.37f; });
}
void copied_then_multiplied(Tiles& x) { copy(x.given, x.weights), multiply(x); }
void computed_then_multiplied(Tiles& x) { compute(x), multiply(x); }

const Case narrow[] = {
    {"a copy", [](Program& p) { product(p, 16, 32, copied_then_multiplied); }},
    {"rounded values, rows that end in a tile register",
     [](Program& p) { product(p, 37, 64, computed_then_multiplied); }, tolerance},
    {"many rows", [](Program& p) { product(p, 128, 96, computed_then_multiplied); }, tolerance},
    {"rows that are summed on the way",
     [](Program& p) {
       product(p, 32, 128, [](Tiles& x) {
         parallel(x.given, [&](Index i, Index j) { x.given(i, j) = exp2(x.given(i, j) * 0.25f); });
         Fragment sums({32}, f32, 0);
         reduce_sum(x.given, sums);
         parallel(x.sum, [&](Index i, Index j) { x.sum(i, j) = sums(i); });
         copied_then_multiplied(x);
       });
     },
     tolerance},
    {"a loop that reads what the product has read",
     [](Program& p) {
       product(p, 33, 64, [](Tiles& x) {
         computed_then_multiplied(x);
         parallel(x.given,
                  [&](Index i, Index j) { x.given(i, j) = f32(x.weights(i, j)) * x.given(i, j) + 1; });
       });
     },
     tolerance},
    {"a loop that reads and replaces",
     [](Program& p) {
       product(p, 16, 32, [](Tiles& x) {
         compute(x);
         parallel(x.weights,
                  [&](Index i, Index j) { x.weights(i, j) = f32(x.weights(i, j)) * x.given(i, j); });
         multiply(x);
         parallel(x.weights, [&](Index i, Index j) { x.weights(i, j) = x.given(i, j); });
         multiply(x);
       });
     },
     tolerance},
    {"in some blocks only",
     [](Program& p) {
       product(p, 16, 32, [](Tiles& x) {
         compute(x);
         when(f32(x.right(3, 5)) > 0, [&] { copy(x.given, x.weights); });
         multiply(x);
       });
     },
     tolerance},
};

const Case wide[] = {
    {"part of a step", [](Program& p) { product(p, 16, 48, computed_then_multiplied); }, tolerance},
    {"few rows", [](Program& p) { product(p, 8, 32, computed_then_multiplied); }, tolerance},
    {"half of the tile",
     [](Program& p) {
       product(p, 16, 64, [](Tiles& x) {
         compute(x);
         parallel(16, 32, [&](Index i, Index j) { x.weights(i, j + 32) = x.given(i, j); });
         multiply(x);
       });
     },
     tolerance},
    {"neighbours",
     [](Program& p) {
       product(p, 16, 32, [](Tiles& x) {
         compute(x);
         parallel(x.given, [&](Index i, Index j) { x.given(i, j) = x.weights(i, 31 - j); });
         multiply(x);
       });
     },
     tolerance},
    {"a reduction",
     [](Program& p) {
       product(p, 16, 32, [](Tiles& x) {
         computed_then_multiplied(x);
         Fragment sums({16}, f32, 0);
         reduce_sum(x.weights, sums);
         parallel(x.sum, [&](Index i, Index j) { x.sum(i, j) += sums(i); });
       });
     },
     tolerance},
    {"a branch in the loop",
     [](Program& p) {
       product(p, 16, 32, [](Tiles& x) {
         compute(x);
         parallel(x.weights,
                  [&](Index i, Index j) { when(x.given(i, j) > 0, [&] { x.weights(i, j) = 1; }); });
         multiply(x);
       });
     },
     tolerance},
    {"columns of A",
     [](Program& p) {
       product(p, 32, 32, [](Tiles& x) { compute(x), gemm(x.weights.T(), x.right, x.sum); });
     },
     tolerance},
};

class NarrowRows : public OnEverySet {};
TEGULA_ON_EVERY_SET(NarrowRows);
TEST_P(NarrowRows, ChangeNoResult) {
  expect_agreement(narrow);
  expect_agreement(wide);
}

bool has(const Case& one, std::string_view function) {
  const Signature signature(Comparison(std::span(&one, 1)).kernel().ir());
  return print_cpu(signature).text.find(function) != std::string::npos;
}

TEST(NarrowRow, IsOfTilesThatLoopsAccessByWholeVectors) {
  for (const Case& one : narrow) EXPECT_TRUE(has(one, "store_narrow(")) << one.name;
  for (const Case& one : wide) EXPECT_FALSE(has(one, "store_narrow(")) << one.name;
}

// A tile that nothing reads again stays in registers: the sums of its rows and the operand come from there.
TEST(NarrowRow, ComesFromTheLoopThatComputesIt) {
  const Case& summed = narrow[3];
  const Signature signature(Comparison(std::span(&summed, 1)).kernel().ir());
  const std::string text = print_cpu(signature).text;
  const auto count = [&](std::string_view what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("store_narrow("), 1U);
  EXPECT_EQ(count("exp2("), 2U);  // for both ways of a tile
}

}  // namespace narrow_rows_test
}  // namespace tegula::codegen
