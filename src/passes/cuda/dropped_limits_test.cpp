// Which copies may bring what follows their limits, and that passes that divide the tile leave it so.
#include "passes/cuda/dropped_limits.hpp"

#include <gtest/gtest.h>

#include "ir/visit.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace dropped_limits_test {

using namespace lang;

struct LimitCase {
  const char* name;
  bool marks;
  int rows = 128;  // 256: sums in halves
  bool is_cut = true;
  bool engine = true;
  bool by_slice = true;    // results are stored through the same slice
  bool b_along_n = false;  // an operand that warps of the producer transpose
};

void PrintTo(const LimitCase& c, std::ostream* out) { *out << c.name; }

Kernel program(const LimitCase& c) {
  return kernel("program", [&] {
    Dim M("M"), N("N"), K("K"), G("G");
    Tensor a = input("a", {M, K}, e4m3),
           b = c.b_along_n ? input("b", {K, N}, e4m3) : input("b", {N, K}, e4m3),
           scale = input("scale", {K, M}, f32), first = input("first", {G}, i32),
           end = input("end", {G}, i32), out = output("out", {M, N}, f32);
    grid(ceildiv(N, 128), G, [&](Index x, Index g) {
      const Expr begin = first(g);
      const Range rows = c.is_cut ? range(begin, end(g)) : range(begin, M);
      Fragment sum({c.rows, 128}, f32, 0);
      pipelined(ceildiv(K, 128), {.stages = 2}, [&](Index k) {
        Shared left({c.rows, 128}, e4m3), right({128, 128}, e4m3), of_row({c.rows}, f32);
        copy(a.slice(rows).at(0, k * 128), left);
        c.b_along_n ? copy(b.at(k * 128, x * 128), right) : copy(b.at(x * 128, k * 128), right);
        copy(scale.slice(k).at(c.b_along_n ? Expr(0) : begin),
             of_row);  // at the multiple of 16 bytes that the engine needs
        Fragment product({c.rows, 128}, f32, 0);
        constexpr GemmOptions options{.accumulate = Accumulate::tensor_core};
        c.b_along_n ? gemm(left, right, product, options) : gemm(left, right.T(), product, options);
        parallel(sum, [&](Index i, Index j) { sum(i, j) += product(i, j) * of_row(i); });
      });
      copy(sum, (c.by_slice ? out.slice(rows) : out.slice(range(begin, M))).at(0, x * 128));
    });
  });
}

const LimitCase cases[] = {
    {"rows_of_a_group", true},
    {"in_halves", true, 256},
    {"beside_a_tile_to_be_transposed", true, 128, true, true, true, true},
    {"stored_elsewhere", false, 128, true, true, false},
    {"cut_by_the_tensor", false, 128, false},
    {"without_the_engine", false, 128, true, false},
};

class DroppedLimits : public ::testing::TestWithParam<LimitCase> {};

TEST_P(DroppedLimits, AreMarked) {
  const LimitCase& c = GetParam();
  CudaTarget target;
  target.copy_engine = c.engine;
  const testing::Lowered lowered(program(c), target);
  bool marks = false;
  for_each_stmt(lowered.plan.kernel.grids[0].body, [&](const ir::Stmt& s) {
    const auto* copy = ir::as<ir::Copy>(s);
    marks |= copy && copy->any_beyond_limits;
  });
  EXPECT_EQ(marks, c.marks);
}

// Rows outside need not be brought in any step where what is stored ends with the tensor.
TEST_P(DroppedLimits, LeaveOutRowsOutside) {
  const LimitCase& c = GetParam();
  CudaTarget target;
  target.copy_engine = c.engine;
  const testing::Lowered lowered(program(c), target);
  bool left = false, right = false;
  for_each_stmt(lowered.plan.kernel.grids[0].body, [&](const ir::Stmt& s) {
    const auto* copy = ir::as<ir::Copy>(s);
    if (copy && copy->from.buffer->name == "a") left |= copy->any_outside;
    if (copy && copy->from.buffer->name == "b") right |= copy->any_outside;
  });
  EXPECT_EQ(left, c.engine);
  EXPECT_EQ(right, c.engine && !c.b_along_n);
}

// The copy engine then brings all, so that one thread is enough.
TEST_P(DroppedLimits, LetOneThreadLoad) {
  const LimitCase& c = GetParam();
  if (!c.engine) return;
  const testing::Lowered lowered(program(c));
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  for (const RingPlan& ring : roles->rings) {
    if (!ring.in_loop || ring.tiles[0]->rank() != 2) continue;
    EXPECT_EQ(roles->is_brought_by_threads(ring), c.is_cut && !c.by_slice);
  }
  EXPECT_EQ(!roles->transposer.empty(), c.b_along_n);
}

INSTANTIATE_TEST_SUITE_P(Table, DroppedLimits, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace dropped_limits_test
}  // namespace tegula::passes
