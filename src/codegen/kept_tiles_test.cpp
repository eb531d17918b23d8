// Tiles that threads keep for their next blocks: which copies do, and that nothing else changes.
#include "codegen/kept_tiles.hpp"

#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace kept_tiles_test {

using namespace lang;
using lang::Tensor;

constexpr int width = 16, rows = 20;  // of tiles, which no height of registers divides

// A block of rows times the rows of b from `column` on, in steps along k.
void multiply(const Tensor& a, const Tensor& b, const Tensor& out, const Expr& row, const Expr& column,
              const Range& steps, const std::function<Expr(const Expr&)>& place) {
  Fragment sum({rows, width}, f32, 0);
  pipelined(steps, [&](Index t) {
    Shared left({rows, width}, f32), right({width, width}, f32);
    copy(a.at(row, t * width), left);
    copy(b.at(column, place(t)), right);
    gemm(left, right.T(), sum);
  });
  copy(sum, out.at(row, column));
}
void multiply(const Tensor& a, const Tensor& b, const Tensor& out, const Expr& row, const Expr& column,
              int depth) {
  multiply(a, b, out, row, column, range(0, (depth + width - 1) / width),
           [](const Expr& t) -> Expr { return t * width; });
}

const Case keeping[] = {
    {"rows that run fastest, edges in every direction",
     [](Program& p) {
       Tensor a = p.in(floats({130, 50})), b = p.in(floats({41, 50}, 2)), out = p.out({130, 41}, f32);
       grid(7, 3, [&](Index y, Index x) { multiply(a, b, out, y * rows, x * width, 50); });
     },
     1e-3},
    {"the order of groups, and more steps than are kept",
     [](Program& p) {
       Tensor a = p.in(floats({130, 1200})), b = p.in(floats({41, 1200}, 2)), out = p.out({130, 41}, f32);
       grid(3, 7, {.order = Order::grouped(3)},
            [&](Index x, Index y) { multiply(a, b, out, y * rows, x * width, 1200); });
     },
     1e-2},
    {"columns, of bf16 and as rows of a tensor",
     [](Program& p) {
       Tensor a = p.in(floats({130, 64}).to(bf16)), b = p.in(floats({40, 64}, 2).to(bf16)),
              out = p.out({130, 40}, f32);
       grid(7, 3, [&](Index y, Index x) {
         Fragment sum({rows, width}, f32, 0);
         pipelined(2, [&](Index t) {
           Shared left({rows, 32}, bf16), right({width, 32}, bf16);
           copy(a.at(y * rows, t * 32), left);
           copy(b.at(x * width, t * 32), right);
           gemm(left, right.T(), sum);
         });
         copy(sum, out.at(y * rows, x * width));
       });
     },
     1e-3},
    {"a place that a list names, and steps that begin elsewhere in each block",
     [](Program& p) {
       Tensor a = p.in(floats({130, 64})), b = p.in(floats({16, 64}, 2)), out = p.out({130, 16}, f32);
       Data order = Data::empty({4}, i32);
       for (int i = 0; i < 4; ++i) order.data_as<std::int32_t>()[i] = (i * 3 + 1) % 4;
       Tensor list = p.in(order);
       grid(7, [&](Index y) {
         multiply(a, b, out, y * rows, 0, range(y % 3, 4),
                  [&](const Expr& t) -> Expr { return list(t) * width; });
       });
     },
     1e-3},
    {"a tile in no loop",
     [](Program& p) {
       Tensor a = p.in(floats({130, 16})), b = p.in(floats({32, 16}, 2)), out = p.out({130, 32}, f32);
       grid(7, 2, [&](Index y, Index x) {
         Fragment sum({rows, width}, f32, 0);
         Shared left({rows, width}, f32), right({width, width}, f32);
         copy(a.at(y * rows, 0), left);
         copy(b.at(x * width, 0), right);
         gemm(left, right.T(), sum);
         copy(sum, out.at(y * rows, x * width));
       });
     },
     1e-3},
    {"a matrix that a number of the block names",
     [](Program& p) {
       Tensor a = p.in(floats({140, 32})), b = p.in(floats({48, 32}, 2)), out = p.out({140, 16}, f32),
              list = p.in(Data::from(std::vector<std::int32_t>{1, 1, 2, 0, 0, 0, 1}));
       grid(7, [&](Index y) {
         Expr own = list(y);
         Fragment sum({rows, width}, f32, 0);
         pipelined(2, [&](Index t) {
           Shared left({rows, width}, f32), right({width, width}, f32);
           copy(a.at(y * rows, t * width), left);
           copy(b.at(own * width, t * width), right);
           gemm(left, right.T(), sum);
         });
         copy(sum, out.at(y * rows, 0));
       });
     },
     1e-3},
    {"one block of the columns that run fastest",
     [](Program& p) {
       lang::Dim n = p.dim("n");
       Tensor a = p.in(floats({130, 50})), b = p.in(floats({15, 50}, 2), {n, 50}),
              out = p.out(Data::full({130, 15}, f32, 1), {130, n});
       grid(ceildiv(n, width), 7, [&](Index x, Index y) { multiply(a, b, out, y * rows, x * width, 50); });
     },
     1e-3},
    {"what an earlier grid of the kernel has written",
     [](Program& p) {
       Tensor a = p.in(floats({130, 32})), b = p.in(floats({16, 32}, 2)), out = p.out({130, 16}, f32),
              again = p.out({130, 16}, f32), doubled = p.workspace({16, 32}, f32);
       const auto fill = [&](float factor) {
         grid(2, [&](Index i) {
           Fragment own({16, 16}, f32);
           copy(b.at(0, i * 16), own);
           parallel(own, [&](Index r, Index c) { own(r, c) = own(r, c) * factor; });
           copy(own, doubled.at(0, i * 16));
         });
       };
       fill(2);
       grid(7, [&](Index y) { multiply(a, doubled, out, y * rows, 0, 32); });
       fill(3);
       grid(7, [&](Index y) { multiply(a, doubled, again, y * rows, 0, 32); });
     },
     1e-3},
};

class KeptTilesOfBlocks : public OnEverySet {};
TEGULA_ON_EVERY_SET(KeptTilesOfBlocks);
TEST_P(KeptTilesOfBlocks, ChangeNoResult) { expect_agreement(keeping); }

std::size_t kept(const Case& one) {
  const std::string text = print_cpu(Signature(Comparison(std::span(&one, 1)).kernel().ir())).text;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(".has(", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(KeptTiles, OperandsThatFollowingBlocksReadAreKept) {
  for (const Case& one : keeping) EXPECT_GT(kept(one), 0u) << one.name;
}

// Products of a loop fetch what the next step copies first.
const Case fetching[] = {
    {"operands of all blocks",
     [](Program& p) {
       Tensor a = p.in(floats({130, 64})), b = p.in(floats({width, 64}, 2)), out = p.out({130, width}, f32);
       grid(7, [&](Index y) {
         Fragment sum({rows, width}, f32, 0);
         pipelined(2, [&](Index t) {
           Shared left({rows, 32}, f32), right({width, 32}, f32);
           copy(b.at(0, t * 32), right);
           copy(a.at(y * rows, t * 32), left);
           gemm(left, right.T(), sum);
         });
         copy(sum, out.at(y * rows, 0));
       });
     },
     1e-3},
};

TEST_P(KeptTilesOfBlocks, AreNotFetchedAgain) { expect_agreement(fetching); }

TEST(KeptTiles, AreFetchedWhereTheThreadHasThemNot) {
  for (const Case& one : fetching) {
    const std::string text = print_cpu(Signature(Comparison(std::span(&one, 1)).kernel().ir())).text;
    EXPECT_NE(text.find(".ahead("), std::string::npos) << text;
  }
}

const Case keeping_nothing[] = {
    {"columns that run fastest",
     [](Program& p) {
       Tensor a = p.in(floats({130, 50})), b = p.in(floats({41, 50}, 2)), out = p.out({130, 41}, f32);
       grid(3, 7, [&](Index x, Index y) { multiply(a, b, out, y * rows, x * width, 50); });
     }},
    {"what the grid writes",
     [](Program& p) {
       Tensor a = p.in(floats({130, 16})), b = p.inout(floats({176, 16}, 2));
       grid(7, [&](Index y) { multiply(a, b, b, y * rows + width, 0, 16); });
     }},
    {"what may be what the grid writes",
     [](Program& p) {
       Tensor a = p.in(floats({130, 16})), b = p.in(floats({16, 16}, 2)), out = p.out({130, 16}, f32);
       may_alias(b, out);
       grid(7, [&](Index y) { multiply(a, b, out, y * rows, 0, 16); });
     }},
    {"a place that an element of a tile names",
     [](Program& p) {
       Tensor a = p.in(floats({130, 16})), b = p.in(floats({16, 32}, 2)), out = p.out({130, 16}, f32);
       grid(7, [&](Index y) {
         Shared at({1}, i32);
         at(0) = y % 2;
         multiply(a, b, out, y * rows, 0, range(0, 1), [&](const Expr&) -> Expr { return at(0) * width; });
       });
     }},
    {"a tile that changes",
     [](Program& p) {
       Tensor a = p.in(floats({130, 16})), b = p.in(floats({16, 16}, 2)), out = p.out({130, 16}, f32);
       grid(7, [&](Index y) {
         Fragment sum({rows, width}, f32, 0);
         Shared left({rows, width}, f32), right({width, width}, f32);
         copy(a.at(y * rows, 0), left);
         copy(b.at(0, 0), right);
         parallel(right, [&](Index i, Index j) { right(i, j) = right(i, j) + 1.0f; });
         gemm(left, right.T(), sum);
         copy(sum, out.at(y * rows, 0));
       });
     }},
};

TEST(KeptTiles, WhatChangesIsNotKept) {
  for (const Case& one : keeping_nothing) EXPECT_EQ(kept(one), 0u) << one.name;
}

}  // namespace kept_tiles_test
}  // namespace tegula::codegen
