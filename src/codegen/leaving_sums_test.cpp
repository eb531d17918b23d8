// Sums of bf16 products that leave from tile registers, and rows of A that these read where they are: which,
// and that nothing else changes.
#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace leaving_sums_test {

using namespace lang;
using lang::Tensor;

constexpr int depth = 32, steps = 3;

struct Tiles {
  Tensor a, b, list, out, other;
  Shared left, right;
  Fragment sum;
};

void load(Tiles& x, const Expr& t) {
  copy(x.a.at(0, t * depth), x.left), copy(x.b.at(t * depth, 0), x.right);
}
void multiply(Tiles& x) { gemm(x.left, x.right, x.sum); }
void loop(Tiles& x) {
  pipelined(steps, [&](Index t) { load(x, t), multiply(x); });
}
void plain(Tiles& x) { loop(x), copy(x.sum, x.out); }

struct Sizes {
  int rows = 20, columns = 48, missing = 0;  // of the result, at its end
  DType result = bf16;
};

void block(Program& p, const std::function<void(Tiles&)>& body, Sizes is = {}) {
  Tensor a = p.in(Data::random_integers({is.rows, steps * depth}, bf16, 1, -3, 4)),
         b = p.in(Data::random_integers({steps * depth, is.columns}, bf16, 2, -3, 4)),
         list = p.in(codegen::list({0, 2})),
         out = p.inout(
             Data::random_integers({is.rows - is.missing, is.columns - is.missing}, is.result, 3, -3, 4)),
         other = p.inout(Data::random_integers({is.rows, is.columns}, f32, 4, -3, 4));
  grid(1, [&](Index) {
    Tiles x{a,
            b,
            list,
            out,
            other,
            Shared({is.rows, depth}, bf16),
            Shared({depth, is.columns}, bf16),
            Fragment({is.rows, is.columns}, f32, 0)};
    body(x);
  });
}

const Case leaving[] = {
    {"bf16", [](Program& p) { block(p, plain); }},
    {"f32", [](Program& p) { block(p, plain, {.result = f32}); }},
    {"f16, many rows", [](Program& p) { block(p, plain, {.rows = 70, .result = f16}); }},
    {"a tile that hangs over the ends", [](Program& p) { block(p, plain, {.missing = 3}); }},
    {"one step",
     [](Program& p) {
       block(p, [](Tiles& x) {
         serial(x.list(1) - 1, [&](Index t) { load(x, t), multiply(x); });
         copy(x.sum, x.out);
       });
     }},
    {"no step",
     [](Program& p) {
       block(p, [](Tiles& x) {
         serial(x.list(0), [&](Index t) { load(x, t), multiply(x); });
         copy(x.sum, x.out);
       });
     }},
    {"what touches others in between",
     [](Program& p) {
       block(p, [](Tiles& x) {
         loop(x);
         parallel(20, 48, [&](Index i, Index j) { x.other(i, j) += 1.0f; });
         copy(x.sum, x.out);
       });
     }},
};

const Case staying[] = {
    {"columns that fill no vectors", [](Program& p) { block(p, plain, {.columns = 41}); }},
    {"few rows", [](Program& p) { block(p, plain, {.rows = 8}); }},
    {"sums that are read again",
     [](Program& p) {
       block(p, [](Tiles& x) {
         plain(x);
         parallel(20, 48, [&](Index i, Index j) { x.other(i, j) += x.sum(i, j); });
       });
     }},
    {"two results", [](Program& p) { block(p, [](Tiles& x) { plain(x), copy(x.sum, x.other); }); }},
    {"sums that a loop changes before",
     [](Program& p) {
       block(p, [](Tiles& x) {
         loop(x);
         parallel(x.sum, [&](Index i, Index j) { x.sum(i, j) *= 2.0f; });
         copy(x.sum, x.out);
       });
     }},
    {"a result that the loop reads",
     [](Program& p) {
       block(p, [](Tiles& x) {
         pipelined(steps, [&](Index t) {
           load(x, t), multiply(x);
           parallel(20, 48, [&](Index i, Index j) { x.other(i, j) += f32(x.out(i, j)); });
         });
         copy(x.sum, x.out);
       });
     }},
    {"a result that is written in between",
     [](Program& p) {
       block(p, [](Tiles& x) {
         loop(x);
         parallel(20, 48, [&](Index i, Index j) { x.out(i, j) = 5.0f; });
         copy(x.sum, x.out);
       });
     }},
};

// Tiles of a step, whose rows of A are `rows`.
void step(Tiles& x, const Expr& t, const Tensor& rows, int products = 1) {
  Shared left({20, depth}, bf16), right({depth, 48}, bf16);
  copy(rows, left), copy(x.b.at(t * depth, 0), right);
  for (int i = 0; i < products; ++i) gemm(left, right, x.sum);
}

const Case placed[] = {
    {"rows of a tensor",
     [](Program& p) {
       block(p, [](Tiles& x) {
         pipelined(steps, [&](Index t) { step(x, t, x.a.slice(all, range(t * depth, t * depth + depth))); });
         copy(x.sum, x.out);
       });
     }},
};

const Case copied[] = {
    {"two products",
     [](Program& p) {
       block(p, [](Tiles& x) {
         pipelined(steps,
                   [&](Index t) { step(x, t, x.a.slice(all, range(t * depth, t * depth + depth)), 2); });
         copy(x.sum, x.out);
       });
     }},
    {"rows that the block writes",
     [](Program& p) {
       block(p, [](Tiles& x) {
         pipelined(steps, [&](Index t) { step(x, t, x.out.slice(all, range(0, depth))); });
         copy(x.sum, x.out);
       });
     }},
};

class LeavingSums : public OnEverySet {};
TEGULA_ON_EVERY_SET(LeavingSums);
TEST_P(LeavingSums, ChangeNoResult) {
  expect_agreement(leaving);
  expect_agreement(staying);
  expect_agreement(placed);
  expect_agreement(copied);
}

bool has(const Case& one, std::string_view word) {
  return print_cpu(Signature(Comparison(std::span(&one, 1)).kernel().ir())).text.find(word) !=
         std::string::npos;
}

TEST(LeavingSum, IsWhatOnlyACopyBehindTheLoopReads) {
  for (const Case& one : leaving) EXPECT_TRUE(has(one, "sums_leave(")) << one.name;
  for (const Case& one : staying) EXPECT_FALSE(has(one, "sums_leave(")) << one.name;
}

TEST(PlacedRow, IsOfATileThatOneProductReads) {
  for (const Case& one : placed) EXPECT_TRUE(has(one, "place_narrow_a(")) << one.name;
  for (const Case& one : copied) EXPECT_FALSE(has(one, "place_narrow_a(")) << one.name;
}

}  // namespace leaving_sums_test
}  // namespace tegula::codegen
