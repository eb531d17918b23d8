// Which tiles the consumers of a block can tell its producer.
#include "passes/cuda/told_tiles.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace told_tiles_test {

using namespace lang;

struct Operands {
  Tensor list, out;
};
struct ToldCase {
  const char* name;
  std::size_t told;
  void (*body)(const Operands& x);
};

void PrintTo(const ToldCase& c, std::ostream* out) { *out << c.name; }

class ToldTilesOf : public ::testing::TestWithParam<ToldCase> {};

TEST_P(ToldTilesOf, AreFound) {
  const Kernel program = kernel("told", [&] {
    Dim N("N");
    const Operands x{input("list", {N}, i32), output("out", {N}, i32)};
    grid(1, [&](Index) { GetParam().body(x); });
  });
  EXPECT_EQ(told_tiles(program.ir()->grids.front().body).size(), GetParam().told);
}

void fill_from_list(const Operands& x, Shared& tile) {
  parallel(16, [&](Index i) { tile(i) = x.list(i); });
}

void read_all(const Operands& x, const Shared& tile) {
  parallel(16, [&](Index i) { x.out(i) = tile(i); });
}

const ToldCase told_cases[] = {
    {"filled_by_a_loop", 1,
     [](const Operands& x) {
       Shared tile({16}, i32);
       fill_from_list(x, tile);
       read_all(x, tile);
     }},
    {"filled_by_two_loops", 1,
     [](const Operands& x) {
       Shared tile({16}, i32);
       fill_from_list(x, tile);
       parallel(8, [&](Index i) { tile(2 * i) = 0; });
       read_all(x, tile);
     }},
    {"filled_again_after_a_read", 0,
     [](const Operands& x) {
       Shared tile({16}, i32);
       fill_from_list(x, tile);
       read_all(x, tile);
       fill_from_list(x, tile);
     }},
    {"filled_by_a_copy", 0,
     [](const Operands& x) {
       Shared tile({16}, i32);
       copy(x.list, tile);
       read_all(x, tile);
     }},
    {"filled_in_each_step", 0,
     [](const Operands& x) {
       Shared tile({16}, i32);
       serial(3, [&](Index) { fill_from_list(x, tile); });
       read_all(x, tile);
     }},
    {"a_matrix", 0,
     [](const Operands& x) {
       Shared tile({4, 4}, i32);
       parallel(4, 4, [&](Index i, Index j) { tile(i, j) = x.list(i + j); });
       parallel(4, 4, [&](Index i, Index j) { x.out(4 * i + j) = tile(j, i); });
     }},
    {"of_registers", 0,
     [](const Operands& x) {
       Fragment tile({16}, i32);
       parallel(tile, [&](Index i) { tile(i) = x.list(i); });
       copy(tile, x.out);
     }},
};
INSTANTIATE_TEST_SUITE_P(Blocks, ToldTilesOf, ::testing::ValuesIn(told_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace told_tiles_test
}  // namespace tegula::passes
