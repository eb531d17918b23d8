// Copies that products make: which do, and that nothing else changes.
#include <cmath>

#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace late_copies_test {

using namespace lang;
using lang::Tensor;

// Tiles of a and b, from a row and a column on, and their product.
struct Tiles {
  Tensor a, b;
  Expr row, column;
  Shared left, right;
  Fragment sum;
};

constexpr int depth = 24, columns = 48;

// The blocks of a product, with the operands' part t in the tiles by `step`.
void product(Program& p, const std::function<void(Tiles&, const Expr& t)>& step, DType type = f32) {
  Tensor a = p.in(Data::random_integers({40, 60}, type, 1, -9, 10)),
         b = p.inout(Data::random_integers({60, 100}, type, 2, -9, 10)), out = p.out({40, 100}, f32);
  grid(1, [&](Index) {
    serial(9, [&](Index n) {
      Expr row = n / 3 * 16, column = n % 3 * columns;
      Tiles tiles{a,
                  b,
                  row,
                  column,
                  Shared({16, depth}, type),
                  Shared({depth, columns}, type),
                  Fragment({16, columns}, f32, 0)};
      pipelined(3, [&](Index t) { step(tiles, t); });
      copy(tiles.sum, out.at(row, column));
    });
  });
}

void copy_left(Tiles& x, const Expr& t) { copy(x.a.at(x.row, t * depth), x.left); }
void copy_right(Tiles& x, const Expr& t) { copy(x.b.at(t * depth, x.column), x.right); }
void multiply(Tiles& x) { gemm(x.left, x.right, x.sum); }

template <DType const& type>
void plain_product(Program& p) {
  product(
      p, [](Tiles& x, const Expr& t) { copy_left(x, t), copy_right(x, t), multiply(x); }, type);
}

// Products of m rows by k x n values of `from`, whose tile holds them, or `transposed`, their transpose.
template <class Source>
void products_of(int m, Program& p, int k, int n, const Source& from, bool transposed, int count = 1) {
  Tensor a = p.in(floats({m, k})), b = p.in(from), out = p.out({m, n}, f32);
  const int rows = transposed ? n : k, width = transposed ? k : n;
  grid(1, [&](Index) {
    Shared left({m, k}, f32), right({rows, width}, f32);
    copy(a, left), copy(b, right);
    Fragment sum({m, n}, f32, 0);
    for (int i = 0; i < count; ++i) {
      if (transposed)
        gemm(left, right.T(), sum);
      else
        gemm(left, right, sum);
    }
    copy(sum, out);
  });
}
template <class Source>
void one_product(Program& p, int k, int n, const Source& from, bool transposed = false) {
  products_of(16, p, k, n, from, transposed);
}

const Case by_products[] = {
    {"f32, the last parts ragged", plain_product<f32>},
    {"f16", plain_product<f16>},
    {"two products of one copy",
     [](Program& p) {
       product(p,
               [](Tiles& x, const Expr& t) { copy_left(x, t), copy_right(x, t), multiply(x), multiply(x); });
     }},
    {"other statements in between",
     [](Program& p) {
       product(p, [](Tiles& x, const Expr& t) {
         copy_right(x, t), copy_left(x, t);
         parallel(16, columns, [&](Index r, Index c) { x.sum(r, c) *= 2.0f; });
         multiply(x);
       });
     }},
    {"a value that is filled in outside",
     [](Program& p) {
       product(p, [](Tiles& x, const Expr& t) {
         copy_left(x, t), copy(x.b.at(t * depth - 5, x.column + 7), x.right, {.fill = 3}), multiply(x);
       });
     }},
    {"rows whose elements do not lie together",
     [](Program& p) {
       one_product(p, 30, 48, every_other(floats({30, 96}, 2), 1));
     }},
    {"an address from a variable that changes in between",
     [](Program& p) {
       Tensor a = p.in(floats({16, 24})), b = p.in(floats({60, 48}, 2)), out = p.out({16, 48}, f32);
       grid(1, [&](Index) {
         Shared left({16, 24}, f32), right({24, 48}, f32);
         copy(a, left);
         Var row = 5;
         copy(b.at(row, 0), right);
         row += 7;
         Fragment sum({16, 48}, f32, 0);
         gemm(left, right, sum);
         copy(sum, out);
       });
     }},
    {"few rows by columns that lie along k",
     [](Program& p) {
       products_of(1, p, 64, 48, floats({48, 64}, 2), true);
     }},
    {"four rows by columns, of which some do not exist",
     [](Program& p) {
       products_of(4, p, 64, 48, floats({45, 64}, 2), true);
     }},
    {"few rows by columns whose elements do not lie together",
     [](Program& p) {
       products_of(3, p, 32, 16, every_other(floats({16, 64}, 2), 1), true);
     }},
    {"few rows, which fill no panel",
     [](Program& p) {
       products_of(2, p, 30, 48, floats({30, 48}, 2), false);
     }},
    {"few rows, whose second product reads the panel",
     [](Program& p) {
       products_of(2, p, 30, 48, floats({30, 48}, 2), false, 2);
     }},
    {"tiles that elements are read from",
     [](Program& p) {
       Tensor a = p.in(floats({16, 40})), b = p.in(floats({40, 64}, 2)), out = p.out({16, 64}, f32);
       grid(1, [&](Index) {
         Shared left({16, 40}, f32), right({40, 64}, f32);
         copy(a, left), copy(b, right);
         parallel(40, 64, [&](Index i, Index j) { right(i, j) += 1.0f; });
         Fragment sum({16, 64}, f32, 0), part = sum.slice(all, range(16, 48));
         gemm(left, right, sum);
         gemm(left.slice(all, range(3, 9)), right.slice(range(5, 11), range(2, 34)), part);
         copy(sum, out);
       });
     }},
};

const Case made_before[] = {
    {"bf16, which copies narrow", plain_product<bf16>},
    {"a tensor that is written in between",
     [](Program& p) {
       product(p, [](Tiles& x, const Expr& t) {
         copy_left(x, t), copy_right(x, t);
         x.b(t * depth, x.column) += 100.0f;
         multiply(x);
       });
     }},
    {"products on some ways only",
     [](Program& p) {
       product(p, [](Tiles& x, const Expr& t) {
         copy_left(x, t), copy_right(x, t);
         when(t < 2, [&] { multiply(x); });
       });
     }},
    {"a loop that is left in between, and a product behind it",
     [](Program& p) {
       product(p, [](Tiles& x, const Expr& t) {
         serial(2, [&](Index n) {
           copy_left(x, t), copy_right(x, t);
           break_if(n + t > 1);
           multiply(x);
         });
         multiply(x);
       });
     }},
    {"another copy in between",
     [](Program& p) {
       product(p, [](Tiles& x, const Expr& t) {
         copy_left(x, t), copy_right(x, t);
         when(t == 1, [&] { copy_right(x, 0); });
         multiply(x);
       });
     }},
    {"columns that fill no vectors",
     [](Program& p) {
       one_product(p, 24, 40, floats({24, 40}, 2));
     }},
    {"rows of the tile that are columns of the operand",
     [](Program& p) {
       one_product(p, 32, 48, floats({48, 32}, 2), true);
     }},
    {"few rows by columns that two products read",
     [](Program& p) {
       products_of(2, p, 32, 48, floats({48, 32}, 2), true, 2);
     }},
    {"few rows by columns that fill no vectors",
     [](Program& p) {
       products_of(2, p, 24, 48, floats({48, 24}, 2), true);
     }},
    {"more rows than a cache holds",
     [](Program& p) {
       one_product(p, 150, 128, floats({150, 128}, 2));
     }},
};

class LateCopies : public OnEverySet {};
TEGULA_ON_EVERY_SET(LateCopies);
TEST_P(LateCopies, ChangeNoResult) {
  expect_agreement(by_products);
  expect_agreement(made_before);
}

bool is_made_by_product(const Case& one) {
  const Signature signature(Comparison(std::span(&one, 1)).kernel().ir());
  const std::string text = print_cpu(signature).text;
  return text.find("rows_or_panels") != std::string::npos ||
         text.find("columns_or_panels") != std::string::npos;
}

TEST(LateCopy, ProductsMakeCopiesThatNothingElseNeeds) {
  for (const Case& one : by_products) EXPECT_TRUE(is_made_by_product(one)) << one.name;
  for (const Case& one : made_before) EXPECT_FALSE(is_made_by_product(one)) << one.name;
}

}  // namespace late_copies_test
}  // namespace tegula::codegen
