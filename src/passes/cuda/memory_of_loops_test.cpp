// How loops over elements meet memory: whether neighbours are apart, and along which index rows are stored.
#include "passes/cuda/memory_of_loops.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace memory_of_loops_test {

using namespace lang;

struct Operands {
  Tensor in, out;
  Expr stride;
};
struct LoopCase {
  const char* name;
  bool spread;  // the first read
  int along;    // of stores
  void (*body)(const Operands& x, const Index& i, const Index& j);
};

void PrintTo(const LoopCase& c, std::ostream* out) { *out << c.name; }

class MemoryOfLoops : public ::testing::TestWithParam<LoopCase> {};

TEST_P(MemoryOfLoops, IsAsTheirCoordinates) {
  const LoopCase& c = GetParam();
  const Kernel program = kernel("loop", [&] {
    Dim M("M"), N("N");
    const Operands x{input("in", {M, N}, f32), output("out", {M, N}, f32), scalar("stride", i32)};
    grid(1, [&](Index) { parallel(8, 16, [&](Index i, Index j) { c.body(x, i, j); }); });
  });
  const ir::Body& body = program.ir()->grids.front().body;
  const ir::For& loop = *testing::all_of<ir::For>(body).front();
  EXPECT_EQ(is_spread(loop, testing::all_of<ir::Load>(body).front()->from), c.spread);
  EXPECT_EQ(along_stored_rows(loop), c.along);
  EXPECT_TRUE(touches_memory(loop));
}

TEST(LoopsOfRegisters, TouchNoMemory) {
  const Kernel program = kernel("registers", [&] {
    grid(1, [&](Index) {
      Fragment x({8, 16}, f32, 1);
      parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) * 2.0f; });
    });
  });
  const ir::For& loop = *testing::all_of<ir::For>(program.ir()->grids.front().body).front();
  EXPECT_FALSE(touches_memory(loop));
  EXPECT_EQ(along_stored_rows(loop), -1);
}

const LoopCase loop_cases[] = {
    {"rows", false, 1, [](const Operands& x, const Index& i, const Index& j) { x.out(i, j) = x.in(i, j); }},
    {"transposed", false, 0,
     [](const Operands& x, const Index& i, const Index& j) { x.out(j, i) = x.in(i, j); }},
    {"pairs_share_a_sector", false, 1,
     [](const Operands& x, const Index& i, const Index& j) { x.out(i, j) = x.in(i, 2 * j + 1); }},
    {"far_apart", true, 1,
     [](const Operands& x, const Index& i, const Index& j) { x.out(i, j) = x.in(i, 16 * j); }},
    {"apart_by_an_unknown_number", true, 1,
     [](const Operands& x, const Index& i, const Index& j) { x.out(i, j) = x.in(i, x.stride * j); }},
    {"the_row_alone_is_multiplied", false, 1,
     [](const Operands& x, const Index& i, const Index& j) { x.out(i, j) = x.in(16 * j, i); }},
};
INSTANTIATE_TEST_SUITE_P(Elements, MemoryOfLoops, ::testing::ValuesIn(loop_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace memory_of_loops_test
}  // namespace tegula::passes
