// Sums that loops begin and rows that they multiply by one: which, and that nothing else changes.
#include <regex>

#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace begun_sums_test {

using namespace lang;
using lang::Tensor;

constexpr int rows = 20, depth = 24, steps = 5;

struct Tiles {
  Tensor a, b, list;
  Shared left, right;
  Fragment sum, other;
};

void load(Tiles& x, const Expr& t) {
  copy(x.a.at(0, t * depth), x.left), copy(x.b.at(t * depth, 0), x.right);
}
void multiply(Tiles& x) { gemm(x.left, x.right, x.sum); }

// A block whose sum, of `columns` columns, is a result, and so is another tile.
void block(Program& p, const std::function<void(Tiles&)>& body, int columns = 48, DType sums = f32,
           double first = 0) {
  const DType type = sums == i32 ? i8 : sums;
  Tensor a = p.in(Data::random_integers({rows, steps * depth}, type, 1, -3, 4)),
         b = p.in(Data::random_integers({steps * depth, columns}, type, 2, -3, 4)),
         list = p.in(codegen::list({3, 0, 2, 1, 4})), out = p.out({rows, columns}, sums),
         result = p.out({rows, columns}, sums);
  grid(1, [&](Index) {
    Tiles x{a,
            b,
            list,
            Shared({rows, depth}, type),
            Shared({depth, columns}, type),
            sums == i32 ? Fragment({rows, columns}, sums, static_cast<int>(first))
                        : Fragment({rows, columns}, sums, first),
            Fragment({rows, columns}, sums)};
    copy(x.b.at(0, 0), x.right);
    fill(x.other, 0);
    body(x);
    copy(x.sum, out), copy(x.other, result);
  });
}
void plain(Tiles& x) {
  pipelined(steps, [&](Index t) { load(x, t), multiply(x); });
}

const Case begun[] = {
    {"f32", [](Program& p) { block(p, plain); }},
    {"columns that fill no vectors", [](Program& p) { block(p, plain, 41); }},
    {"f16, whose sums are rounded", [](Program& p) { block(p, plain, 48, f16); }},
    {"integers", [](Program& p) { block(p, plain, 48, i32); }},
    {"as many steps as a list says, and none",
     [](Program& p) {
       block(p, [](Tiles& x) {
         serial(x.list(1), [&](Index t) { load(x, t), multiply(x); });
         copy(x.sum, x.other);
         fill(x.sum, 0.0f);
         serial(x.list(0), [&](Index t) { load(x, t), multiply(x); });
       });
     }},
    {"what touches other tiles in between and in the loop",
     [](Program& p) {
       block(p, [](Tiles& x) {
         parallel(x.other, [&](Index i, Index j) { x.other(i, j) = 2.0f; });
         pipelined(steps, [&](Index t) {
           load(x, t);
           parallel(x.other, [&](Index i, Index j) { x.other(i, j) += f32(x.left(i, 3)); });
           multiply(x);
         });
       });
     }},
    {"a loop within a loop",
     [](Program& p) {
       block(p, [](Tiles& x) {
         serial(3, [&](Index n) {
           fill(x.sum, 0.0f);
           pipelined(n, [&](Index t) { load(x, t), multiply(x); });
           parallel(x.other, [&](Index i, Index j) { x.other(i, j) += x.sum(i, j); });
         });
       });
     }},
};

const Case cleared[] = {
    {"other numbers at the beginning", [](Program& p) { block(p, plain, 48, f32, 1); }},
    {"a sum that the loop multiplies",
     [](Program& p) {
       block(p, [](Tiles& x) {
         pipelined(steps, [&](Index t) {
           load(x, t);
           parallel(x.sum, [&](Index i, Index j) { x.sum(i, j) *= 2.0f; });
           multiply(x);
         });
       });
     }},
    {"a sum that is read in between",
     [](Program& p) {
       block(p, [](Tiles& x) {
         parallel(x.other, [&](Index i, Index j) { x.other(i, j) = x.sum(i, j) + 1.0f; });
         plain(x);
       });
     }},
    {"products in some steps only",
     [](Program& p) {
       block(p, [](Tiles& x) {
         pipelined(steps, [&](Index t) {
           load(x, t);
           when(t > 1, [&] { multiply(x); });
         });
       });
     }},
    {"a loop that is left before the product",
     [](Program& p) {
       block(p, [](Tiles& x) {
         serial(steps, [&](Index t) {
           break_if(x.list(t) == 3);
           load(x, t), multiply(x);
         });
       });
     }},
    {"two products",
     [](Program& p) {
       block(p, [](Tiles& x) { pipelined(steps, [&](Index t) { load(x, t), multiply(x), multiply(x); }); });
     }},
    {"part of a sum",
     [](Program& p) {
       block(p, [](Tiles& x) {
         Fragment part = x.sum.slice(all, range(16, 48));
         pipelined(steps, [&](Index t) { load(x, t), gemm(x.left, x.right.slice(all, range(0, 32)), part); });
       });
     }},
};

// Rows are multiplied by numbers, some of them one, before products add to them: as in a softmax, by what
// running maxima, or other numbers, have changed.
void scaled(Program& p, const std::function<void(Tiles&, Fragment&)>& scale, bool by_maxima = true) {
  block(p, [&](Tiles& x) {
    Fragment largest({rows}, f32, -2), before({rows}, f32), factors({rows}, f32);
    pipelined(steps, [&](Index t) {
      load(x, t);
      copy(largest, before);
      if (by_maxima)
        reduce_max(x.left, largest);
      else
        parallel(rows, [&](Index i) { largest(i) = x.left(i, 5); });
      parallel(rows, [&](Index i) { factors(i) = before(i) - largest(i) + 1.0f; });
      scale(x, factors);
      multiply(x);
    });
  });
}
void by_rows(Tiles& x, Fragment& factors) {
  parallel(x.sum, [&](Index i, Index j) { x.sum(i, j) *= factors(i); });
}

const Case asked[] = {
    {"rows", [](Program& p) { scaled(p, by_rows); }},
    {"beside a loop over the same rows",
     [](Program& p) {
       scaled(p, [](Tiles& x, Fragment& factors) {
         parallel(x.other, [&](Index i, Index j) { x.other(i, j) = x.other(i, j) + factors(i); });
         by_rows(x, factors);
         parallel(x.other, [&](Index i, Index j) { x.other(i, j) = x.other(i, j) + x.sum(i, j); });
       });
     }},
};
const Case multiplied[] = {
    {"by numbers that no maximum decides", [](Program& p) { scaled(p, by_rows, false); }},
    {"by a number of the tile itself",
     [](Program& p) {
       scaled(p, [](Tiles& x, Fragment&) {
         parallel(rows, 16, [&](Index i, Index j) { x.sum(i, j + 16) *= x.sum(i, 0); });
       });
     },
     1e-5},
    {"by numbers of columns",
     [](Program& p) {
       scaled(p, [](Tiles& x, Fragment& factors) {
         parallel(rows, rows, [&](Index i, Index j) { x.sum(i, j) *= factors(j); });
       });
     }},
    {"and added to",
     [](Program& p) {
       scaled(p, [](Tiles& x, Fragment& factors) {
         parallel(x.sum, [&](Index i, Index j) { x.sum(i, j) = x.sum(i, j) * factors(i) + 1.0f; });
       });
     }},
};

class BegunSums : public OnEverySet {};
TEGULA_ON_EVERY_SET(BegunSums);
TEST_P(BegunSums, ChangeNoResult) {
  expect_agreement(begun);
  expect_agreement(cleared);
}

class ScaledRows : public OnEverySet {};
TEGULA_ON_EVERY_SET(ScaledRows);
TEST_P(ScaledRows, ChangeNoResult) {
  expect_agreement(asked);
  expect_agreement(multiplied);
}

std::string text_of(const Case& one) {
  return print_cpu(Signature(Comparison(std::span(&one, 1)).kernel().ir())).text;
}

TEST(BegunSum, LoopsBeginWhatOnlyOneProductOfEachStepAddsTo) {
  const std::regex begins(R"((gemm_panel|gemm_bf16).* > 0(,|\)))");
  for (const Case& one : begun) EXPECT_TRUE(std::regex_search(text_of(one), begins)) << one.name;
  for (const Case& one : cleared) EXPECT_FALSE(std::regex_search(text_of(one), begins)) << one.name;
}

TEST(ScaledRow, LoopsLeaveRowsAloneWhoseNumberIsOne) {
  for (const Case& one : asked) EXPECT_NE(text_of(one).find("!= 1.0f"), std::string::npos) << one.name;
  for (const Case& one : multiplied) EXPECT_EQ(text_of(one).find("!= 1.0f"), std::string::npos) << one.name;
}

}  // namespace begun_sums_test
}  // namespace tegula::codegen
