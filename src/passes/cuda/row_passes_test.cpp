// What passes for programs over rows look at: bits of indices, places of steps, loads that all blocks share.
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/late_loads.hpp"
#include "passes/cuda/steps_apart.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace row_passes_test {

using namespace lang;

// ---- element_bits

// How a loop over [4, 8] looks at a fragment of 64.
std::optional<ElementBits> bits_in(const std::function<Expr(Fragment&, Index, Index)>& element) {
  const lang::Kernel program = kernel("bits", [&] {
    Tensor out = output("out", {4, 8}, f32);
    grid(1, {.threads = 32}, [&](Index) {
      Fragment x({64}, f32, 0);
      parallel(4, 8, [&](Index p, Index q) { out(p, q) = element(x, p, q); });
    });
  });
  for (const auto* loop : testing::all_of<ir::For>(program.ir()->grids[0].body))
    for (const auto* load : testing::all_of<ir::Load>(loop->body))
      if (load->from.view.buffer->space == ir::Space::fragment) return element_bits(*loop, load->from);
  return std::nullopt;
}

TEST(ElementBits, AreTheSameHoweverTheyAreSpelled) {
  const ElementBits wanted{{1, 0}, {1, 1}, {1, 2}, {-1, 1}, {0, 0}, {0, 1}};
  EXPECT_EQ(bits_in([](Fragment& x, Index p, Index q) { return x.reshape({4, 2, 8})(p, 1, q); }), wanted);
  EXPECT_EQ(bits_in([](Fragment& x, Index p, Index q) { return x.reshape({8, 8})(p * 2 + 1, q); }), wanted);
  EXPECT_EQ(bits_in([](Fragment& x, Index p, Index q) { return x(p * 16 + 8 + q); }), wanted);
}

TEST(ElementBits, AreNoneWhereIndicesMeet) {
  EXPECT_FALSE(bits_in([](Fragment& x, Index p, Index q) { return x(p * 4 + q); }));
  EXPECT_FALSE(bits_in([](Fragment& x, Index p, Index q) { return x(p * 8 + q + 1); }));
  EXPECT_FALSE(bits_in([](Fragment& x, Index p, Index q) { return x(p * 12 + q); }));
}

// ---- steps_are_apart

struct StepsCase {
  const char* name;
  int read_from, write_from, factor;  // columns: factor * step + that, 64 of them; a negative one from N
  bool apart;
};
void PrintTo(const StepsCase& c, std::ostream* out) { *out << c.name; }

class StepsApart : public ::testing::TestWithParam<StepsCase> {};

TEST_P(StepsApart, KeepToPlacesOfTheirOwn) {
  const StepsCase& c = GetParam();
  const lang::Kernel program = kernel("steps", [&] {
    Dim M("M"), N("N");
    Tensor x = inout("x", {M, N}, f32);
    grid(M, {.threads = 64}, [&](Index row) {
      pipelined(N / 64, [&](Index i) {
        const Expr first = c.factor < 0 ? N + i * c.factor : i * c.factor;
        Shared tile({64}, f32);
        copy(x.slice(row).at(first + c.read_from), tile);
        parallel(64, [&](Index j) { x(row, first + c.write_from + j) = tile(j); });
      });
    });
  });
  const auto loops = testing::all_of<ir::For>(program.ir()->grids[0].body);
  const auto steps = std::find_if(loops.begin(), loops.end(),
                                  [](const ir::For* l) { return l->kind == ir::LoopKind::pipelined; });
  EXPECT_EQ(steps_are_apart(**steps, *program.ir()->parameters[0].tensor), c.apart);
}

INSTANTIATE_TEST_SUITE_P(Table, StepsApart,
                         ::testing::Values(StepsCase{"in_place", 0, 0, 64, true},
                                           StepsCase{"with_room", 64, 0, 128, true},
                                           StepsCase{"from_the_end", -64, -64, -64, true},
                                           StepsCase{"overlapping", 0, 0, 32, false},
                                           StepsCase{"of_the_next_step", 64, 0, 64, false},
                                           StepsCase{"all_the_same", 0, 0, 0, false}),
                         [](const auto& info) { return std::string(info.param.name); });

// Rows that are as far apart as there are blocks: a block runs only if there is one.
TEST(StepsApart, KnowRowsOfBlocksThatStay) {
  for (const bool by_blocks : {false, true}) {
    const lang::Kernel program = kernel("stays", [&] {
      Dim M("M");
      Tensor x = inout("x", {M, 64}, f32);
      const Expr blocks = min(M, max(processors() / 8 - 1, 1)), stride = by_blocks ? blocks : M / 3;
      grid(blocks, {.threads = 64}, [&](Index block) {
        serial(ceildiv(M - block, blocks), [&](Index i) {
          Fragment row = load(x.slice(block + i * stride), {64}, f32);
          copy(row, x.slice(block + i * stride));
        });
      });
    });
    const ir::Grid& grid = program.ir()->grids[0];
    const auto loops = testing::all_of<ir::For>(grid.body);
    const ir::Buffer& x = *program.ir()->parameters[0].tensor;
    EXPECT_EQ(steps_are_apart(*loops[0], x, grid.extents), by_blocks);
    EXPECT_FALSE(steps_are_apart(*loops[0], x));
  }
}

// A step may come to the row that another one reads of, if the two go through the tensor by different
// strides.
TEST(StepsApart, AskForOneStride) {
  for (const int more : {1, 2}) {
    const lang::Kernel program = kernel("strides", [&] {
      Dim M("M");
      Tensor x = inout("x", {M, 64}, f32);
      const Expr blocks = min(M, max(processors() / 8 - 1, 1));
      grid(blocks, {.threads = 64}, [&](Index block) {
        serial(ceildiv(M - block, blocks), [&](Index i) {
          Fragment row = load(x.slice(block + i * blocks * more), {64}, f32);
          copy(row, x.slice(block + i * blocks));
        });
      });
    });
    const ir::Grid& grid = program.ir()->grids[0];
    const auto loops = testing::all_of<ir::For>(grid.body);
    EXPECT_EQ(steps_are_apart(*loops[0], *program.ir()->parameters[0].tensor, grid.extents), more == 1);
  }
}

// ---- late_loads

// Where the weights' load stands beside the reduction, in the order of the plan.
bool is_behind_the_sum(bool of_block, bool early) {
  const lang::Kernel program = kernel("late", [&] {
    Dim M("M");
    Tensor x = input("x", {M, 256}, f32), w = input("w", {M, 256}, f32), out = output("out", {M, 256}, f32);
    grid(M, {.threads = 64}, [&](Index row) {
      Fragment own({256}, f32), weight({256}, f32);
      copy(x.slice(row), own);
      copy(w.slice(of_block ? Expr(row) : Expr(0)), weight);
      if (early) parallel(own, [&](Index i) { own(i) *= weight(i); });
      Expr sum = reduce_sum(own).scalar();
      parallel(own, [&](Index i) { own(i) = own(i) * weight(i) + sum; });
      copy(own, out.slice(row));
    });
  });
  const testing::Lowered lowered(program);
  bool reduced = false;
  for (const ir::Stmt& s : lowered.body()) {
    reduced |= ir::as<ir::Reduce>(s) != nullptr;
    bool loads = false;
    ir::for_each_stmt({s}, [&](const ir::Stmt& inner) {
      const auto* load = ir::as<ir::Load>(inner);
      loads |= load && load->from.view.buffer->name == "w";
    });
    if (loads) return reduced;
  }
  return false;
}

TEST(LateLoads, StandWhereTheyAreUsed) {
  EXPECT_TRUE(is_behind_the_sum(false, false));
  EXPECT_FALSE(is_behind_the_sum(true, false));
  EXPECT_FALSE(is_behind_the_sum(false, true));
}

}  // namespace row_passes_test
}  // namespace tegula::passes
