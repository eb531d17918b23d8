// Which loads of an iteration make up pieces of a row, however their places are spelled.
#include "passes/cuda/neighbour_loads.hpp"

#include <gtest/gtest.h>

#include <map>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace neighbour_loads_test {

using namespace lang;

struct Given {
  const Tensor &x, &out;
  Expr row, word;
};

struct PiecesCase {
  const char* name;
  std::multiset<int> widths;
  void (*body)(const Given& given);  // of an iteration
  DType type = f16;
  int multiple = 8;  // of the rows' length
};

void PrintTo(const PiecesCase& c, std::ostream* out) { *out << c.name; }

// Adds the elements with these numbers behind the word's first.
template <class Place>
void add(const Given& g, int begin, int end, Place place) {
  Var sum = 0.0f;
  for (int e = begin; e < end; ++e) sum += g.x(g.row, place(g.word, e));
  g.out(g.row, g.word) = sum;
}

const PiecesCase pieces_cases[] = {
    {"eight", {8}, [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return w * 8 + e; }); }},
    {"in_a_sum_of_products",
     {8},
     [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return (w * 4 + e / 2) * 2 + e % 2; }); }},
    {"from_the_last_on",
     {8},
     [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return w * 8 + 7 - e; }); }},
    {"sixteen",
     {8, 8},
     [](const Given& g) { add(g, 0, 16, [](const Expr& w, int e) { return w * 16 + e; }); }},
    {"words",
     {4, 4},
     [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return w * 8 + e; }); },
     f32},
    {"four", {4}, [](const Given& g) { add(g, 0, 4, [](const Expr& w, int e) { return w * 8 + e; }); }},
    {"eight_from_four_on",
     {4, 4},
     [](const Given& g) { add(g, 4, 12, [](const Expr& w, int e) { return w * 8 + e; }); }},
    {"seven_of_eight",
     {4, 2},
     [](const Given& g) { add(g, 0, 7, [](const Expr& w, int e) { return w * 8 + e; }); }},
    {"from_one_on",
     {2},
     [](const Given& g) { add(g, 1, 4, [](const Expr& w, int e) { return w * 8 + e; }); }},
    {"rows_that_end_anywhere",
     {},
     [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return w * 8 + e; }); },
     f16,
     1},
    {"words_that_begin_anywhere",
     {},
     [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return w * 7 + e; }); }},
    {"every_other",
     {},
     [](const Given& g) { add(g, 0, 8, [](const Expr& w, int e) { return w * 16 + e * 2; }); }},
    {"of_different_rows",
     {},
     [](const Given& g) {
       Var sum = 0.0f;
       for (int e = 0; e < 8; ++e) sum += g.x(g.row + e % 2, g.word * 8 + e);
       g.out(g.row, g.word) = sum;
     }},
    {"of_a_slice",
     {8},
     [](const Given& g) {
       Tensor part = g.x.slice(all, range(8, 24));
       Var sum = 0.0f;
       for (int e = 0; e < 8; ++e) sum += part(g.row, g.word % 2 * 8 + e);
       g.out(g.row, g.word) = sum;
     }},
    {"of_a_slice_that_begins_anywhere",
     {},
     [](const Given& g) {
       Tensor part = g.x.slice(all, range(3, 19));
       Var sum = 0.0f;
       for (int e = 0; e < 8; ++e) sum += part(g.row, g.word % 2 * 8 + e);
       g.out(g.row, g.word) = sum;
     }},
    {"by_a_number_that_changes",
     {},
     [](const Given& g) {
       Var sum = 0.0f, first = i32(g.word) * 8;
       for (int e = 0; e < 8; ++e) {
         sum += g.x(g.row, first + e);
         first += 8;
       }
       g.out(g.row, g.word) = sum;
     }},
    {"behind_a_store",
     {4},
     [](const Given& g) {
       add(g, 0, 4, [](const Expr& w, int e) { return w * 8 + e; });
       add(g, 4, 8, [](const Expr& w, int e) { return w * 8 + e; });
     }},
};

class LoadsOfAnIteration : public ::testing::TestWithParam<PiecesCase> {};

TEST_P(LoadsOfAnIteration, MakeUpPieces) {
  const PiecesCase& c = GetParam();
  const lang::Kernel program = kernel("pieces", [&] {
    Dim N("N"), K("K"), W("W");
    K.multiple_of(c.multiple);
    Tensor x = input("x", {N, K}, c.type), out = output("out", {N, W}, f32);
    grid(N, ceildiv(W, 64), [&](Index row, Index step) {
      parallel(64, [&](Index j) { c.body({x, out, row, step * 64 + j}); });
    });
  });
  const CudaPlan plan = plan_for_cuda(*program.ir(), {80});
  const ir::Grid& grid = plan.kernel.grids[0];
  ir::Facts facts;
  for (const ir::Dim& dim : plan.kernel.dims) facts.add_multiple(dim.variable, dim.multiple);
  const ir::For* loop = testing::all_of<ir::For>(grid.body).at(0);
  const PieceLoads found = piece_loads(loop->body, facts);
  std::multiset<int> widths;
  std::map<std::size_t, std::set<int>> parts;
  for (const auto& [load, part] : found.loads) parts[part.piece].insert(part.at);
  for (std::size_t i = 0; i < found.pieces.size(); ++i) {
    widths.insert(found.pieces[i].width);
    EXPECT_EQ(static_cast<int>(parts[i].size()), found.pieces[i].width);
  }
  EXPECT_EQ(widths, c.widths);
}

INSTANTIATE_TEST_SUITE_P(Table, LoadsOfAnIteration, ::testing::ValuesIn(pieces_cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace neighbour_loads_test
}  // namespace tegula::passes
