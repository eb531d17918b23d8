// Copies of bf16 that bring operands as tile registers want them: which do, and that nothing else changes.
#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace narrow_copies_test {

using namespace lang;
using lang::Tensor;

Data wholes(const Shape& shape, std::uint64_t seed) {
  return Data::random_integers(shape, bf16, seed, -9, 10);
}

struct Tiles {
  Shared left, right;
  Fragment sum;
};

// A product of `rows` rows, whose tiles hang over the ends of the tensors, and what else becomes of them.
void product(Program& p, int rows, int k, int columns, bool transposed,
             const std::function<void(Tiles&)>& step = {}) {
  Tensor a = p.in(wholes({rows - 3, 2 * k - 5}, 1)), out = p.out({rows, columns}, f32);
  Tensor b = p.in(transposed ? wholes({columns - 2, 2 * k - 5}, 2) : wholes({2 * k - 5, columns - 2}, 2));
  grid(1, [&](Index) {
    Tiles tiles{Shared({rows, k}, bf16), transposed ? Shared({columns, k}, bf16) : Shared({k, columns}, bf16),
                Fragment({rows, columns}, f32, 0)};
    pipelined(2, [&](Index t) {
      copy(a.at(-1, t * k), tiles.left);
      copy(transposed ? b.at(0, t * k) : b.at(t * k, 0), tiles.right);
      if (step) step(tiles);
      if (transposed)
        gemm(tiles.left, tiles.right.T(), tiles.sum);
      else
        gemm(tiles.left, tiles.right, tiles.sum);
    });
    copy(tiles.sum, out);
  });
}

// The rows of A are pixels of windows that hang over the edges of images, of which each is several rows of a
// tile.
void convolution(Program& p, int images, int height, int width, int channels) {
  const int rows = images * height * width;
  Tensor a = p.in(wholes({images, height + 1, width - 1, channels - 3}, 1)),
         b = p.in(wholes({9, channels, 20}, 2)), out = p.out({rows, 32}, f32);
  grid(1, [&](Index) {
    Fragment sum({rows, 32}, f32, 0);
    pipelined(9, [&](Index tap) {
      Shared pixels({rows, channels}, bf16), weights({channels, 32}, bf16);
      copy(a.at(0, tap / 3 - 1, tap % 3 - 1, 0), pixels.reshape({images, height, width, channels}));
      copy(b.slice(tap), weights);
      gemm(pixels, weights, sum);
    });
    copy(sum, out);
  });
}

// Rows of A, or of B, are those that a list names, some of which do not exist.
void listed(Program& p, bool is_a) {
  const int rows = 21, k = 48, columns = 32;
  Tensor a = p.in(wholes({30, 2 * k - 5}, 1)), b = p.in(wholes({columns + 9, 2 * k - 5}, 2)),
         list = p.in(Data::random_integers({40}, i32, 3, -2, 33)), out = p.out({rows, columns}, f32);
  grid(1, [&](Index) {
    Fragment sum({rows, columns}, f32, 0);
    pipelined(2, [&](Index t) {
      Shared left({rows, k}, bf16), right({columns, k}, bf16);
      const auto named = [&](Index i) { return list(i); };
      const Range own = range(t * k, t * k + k);
      if (is_a)
        gather(a.slice(all, own), named, left), copy(b.at(0, t * k), right);
      else
        copy(a.at(0, t * k), left), gather(b.slice(all, own), named, right);
      gemm(left, right.T(), sum);
    });
    copy(sum, out);
  });
}

const Case both_operands[] = {
    {"rows of A from a list", [](Program& p) { listed(p, true); }},
    {"rows of B", [](Program& p) { product(p, 16, 24, 48, false); }},
    {"columns of B", [](Program& p) { product(p, 37, 40, 20, true); }},
    {"more than one panel, and steps of 32", [](Program& p) { product(p, 64, 64, 112, false); }},
    {"windows of an image", [](Program& p) { convolution(p, 1, 3, 7, 48); }},
    {"windows of several images", [](Program& p) { convolution(p, 3, 2, 5, 32); }},
    {"two products of the same tiles",
     [](Program& p) { product(p, 32, 32, 32, false, [](Tiles& x) { gemm(x.left, x.right, x.sum); }); }},
};

const Case no_operand[] = {
    {"few rows", [](Program& p) { product(p, 8, 24, 48, false); }},
    {"tiles that other statements read",
     [](Program& p) {
       product(p, 16, 16, 16, false, [](Tiles& x) {
         parallel(16, 16, [&](Index i, Index j) { x.sum(i, j) += f32(x.left(i, j)) - f32(x.right(i, j)); });
       });
     }},
    {"tiles that are both operands",
     [](Program& p) { product(p, 16, 16, 16, false, [](Tiles& x) { gemm(x.right, x.left, x.sum); }); }},
};

// Rows of 24 elements have no padding once their tile has been reshaped, and 32 bf16 do not fit in them.
const Case short_rows[] = {{"windows", [](Program& p) { convolution(p, 1, 4, 4, 24); }}};

// Panels of B are filled row by row.
const Case listed_rows_of_b[] = {{"rows of B from a list", [](Program& p) { listed(p, false); }}};

class NarrowCopies : public OnEverySet {};
TEGULA_ON_EVERY_SET(NarrowCopies);
TEST_P(NarrowCopies, ChangeNoResult) {
  expect_agreement(both_operands);
  expect_agreement(no_operand);
  expect_agreement(short_rows);
  expect_agreement(listed_rows_of_b);
}

bool has(const Case& one, std::string_view function) {
  const Signature signature(Comparison(std::span(&one, 1)).kernel().ir());
  return print_cpu(signature).text.find(function) != std::string::npos;
}

TEST(NarrowCopy, IsOfTilesThatOnlyProductsRead) {
  for (const Case& one : both_operands)
    EXPECT_TRUE(has(one, "_narrow_a(") && has(one, "load_narrow_b(")) << one.name;
  for (const Case& one : no_operand)
    EXPECT_FALSE(has(one, "_narrow_a(") || has(one, "load_narrow_b(")) << one.name;
  EXPECT_TRUE(has(listed_rows_of_b[0], "_narrow_a(") && !has(listed_rows_of_b[0], "load_narrow_b("));
}

TEST(NarrowCopy, NeedsRowsThatHaveRoom) { EXPECT_FALSE(has(short_rows[0], "_narrow_a(")); }

}  // namespace narrow_copies_test
}  // namespace tegula::codegen
