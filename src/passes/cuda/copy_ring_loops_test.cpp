// Which loops without roles have rings: what keeps a tile where it is used.
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/copy_rings.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace copy_ring_loops_test {

using namespace lang;

const CudaTarget hopper{90};

using Body = std::function<void(const Tensor& x, const Tensor& list, const Tensor& out, Fragment& sum)>;

Kernel with(const Body& body) {
  return kernel("with", [&] {
    Dim M("M"), N("N");
    Tensor x = input("x", {M, 64}, f32), list = input("list", {N}, i32), out = output("out", {N, 64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      Fragment sum({64}, f32, 0);
      body(x, list, out, sum);
      parallel(sum, [&](Index i) { out(0, i) = sum(i); });
    });
  });
}

void add_row(const Tensor& x, const Expr& row, Fragment& sum) {
  Shared tile({1, 64}, f32);
  copy(x.at(row, 0), tile);
  parallel(sum, [&](Index i) { sum(i) = sum(i) + tile(0, i); });
}

// A row of sums of 9 rows, and these again from the end.
void there_and_back(const std::function<void(const Expr&)>& there,
                    const std::function<void(const Expr&)>& back) {
  pipelined(9, {.stages = 4}, [&](Index i) { there(i); });
  pipelined(9, {.stages = 4}, [&](Index i) { back(8 - i); });
}

struct RingsCase {
  const char* name;
  Body body;
  std::size_t loops, notes;
  int rings = -1;  // of these loops; -1: one each
};
void PrintTo(const RingsCase& c, std::ostream* out) { *out << c.name; }

class CopyRingLoops : public ::testing::TestWithParam<RingsCase> {};

TEST_P(CopyRingLoops, AreThoseThatCanBringTheirTilesAhead) {
  const RingsCase& c = GetParam();
  const testing::Lowered lowered(with(c.body), hopper);
  const CopyRings& rings = lowered.plan.grids[0].copy_rings;
  EXPECT_EQ(rings.loops.size(), c.loops);
  EXPECT_EQ(rings.count(), c.rings < 0 ? static_cast<int>(c.loops) : c.rings);
  EXPECT_EQ(rings.notes.size(), c.notes) << ::testing::PrintToString(passes::format(rings.notes));
}

const RingsCase rings_cases[] = {
    {"plain", [](auto& x, auto&, auto&, auto& sum) { pipelined(9, [&](Index i) { add_row(x, i, sum); }); }, 1,
     0},
    {"serial", [](auto& x, auto&, auto&, auto& sum) { serial(9, [&](Index i) { add_row(x, i, sum); }); }, 0,
     0},
    {"one_step", [](auto& x, auto&, auto&, auto& sum) { pipelined(1, [&](Index i) { add_row(x, i, sum); }); },
     0, 0},
    {"by_a_list",
     [](auto& x, auto& list, auto&, auto& sum) { pipelined(9, [&](Index i) { add_row(x, list(i), sum); }); },
     1, 0},
    {"branch",
     [](auto& x, auto& list, auto&, auto& sum) {
       pipelined(9, [&](Index i) { when(list(i) > 0, [&] { add_row(x, i, sum); }); });
     },
     1, 0},
    {"of_what_was_computed",
     [](auto& x, auto&, auto&, auto& sum) {
       pipelined(9, [&](Index) { add_row(x, i32(reduce_sum(sum).scalar()), sum); });
     },
     0, 1},
    {"of_what_is_written_behind",
     [](auto&, auto&, auto& out, auto& sum) { pipelined(9, [&](Index i) { add_row(out, i, sum); }); }, 1, 0},
    {"of_what_was_written",
     [](auto&, auto&, auto& out, auto& sum) {
       parallel(sum, [&](Index i) { out(1, i) = sum(i); });
       pipelined(9, [&](Index i) { add_row(out, i, sum); });
     },
     0, 1},
    {"of_what_another_step_writes",
     [](auto&, auto&, auto& out, auto& sum) {
       pipelined(9, [&](Index i) {
         add_row(out, i, sum);
         parallel(sum, [&](Index j) { out(i + 1, j) = sum(j); });
       });
     },
     0, 1},
    {"of_what_its_step_writes",
     [](auto&, auto&, auto& out, auto& sum) {
       pipelined(9, [&](Index i) {
         add_row(out, i, sum);
         parallel(sum, [&](Index j) { out(i, j) = sum(j); });
       });
     },
     1, 0},
    {"changed_in_place",
     [](auto& x, auto&, auto&, auto& sum) {
       pipelined(9, [&](Index i) {
         Shared tile({1, 64}, f32);
         copy(x.at(i, 0), tile);
         parallel(1, 64, [&](Index r, Index j) { tile(r, j) = tile(r, j) * 2; });
         parallel(sum, [&](Index j) { sum(j) = sum(j) + tile(0, 63 - j); });
       });
     },
     0, 1},
    {"beside_one_that_is_made",
     [](auto& x, auto&, auto&, auto& sum) {
       pipelined(9, [&](Index i) {
         Shared tile({1, 64}, f32), twice({1, 64}, f32);
         copy(x.at(i, 0), tile);
         parallel(1, 64, [&](Index r, Index j) { twice(r, j) = tile(r, j) * 2; });
         parallel(sum, [&](Index j) { sum(j) = sum(j) + twice(0, 63 - j); });
       });
     },
     1, 0},
    {"there_and_back",
     [](auto& x, auto&, auto&, auto& sum) {
       const auto add = [&](const Expr& i) { add_row(x, i, sum); };
       there_and_back(add, add);
     },
     2, 0, 1},
    {"there_and_there",
     [](auto& x, auto&, auto&, auto& sum) {
       for (int turn = 0; turn < 2; ++turn) pipelined(9, [&](Index i) { add_row(x, i, sum); });
     },
     2, 0},
    {"back_over_other_rows",
     [](auto& x, auto&, auto&, auto& sum) {
       there_and_back([&](const Expr& i) { add_row(x, i, sum); },
                      [&](const Expr& i) { add_row(x, i + 1, sum); });
     },
     2, 0},
    {"back_after_a_loop_left_early",
     [](auto& x, auto& list, auto&, auto& sum) {
       there_and_back(
           [&](const Expr& i) {
             add_row(x, i, sum);
             break_if(list(i) > 0);
           },
           [&](const Expr& i) { add_row(x, i, sum); });
     },
     2, 0},
    {"back_over_what_was_written",
     [](auto&, auto&, auto& out, auto& sum) {
       const auto add = [&](const Expr& i) { add_row(out, i, sum); };
       pipelined(9, [&](Index i) { add(i); });
       parallel(sum, [&](Index j) { out(1, j) = sum(j); });
       pipelined(9, [&](Index i) { add(8 - i); });
     },
     1, 1},
    {"in_groups",
     [](auto& x, auto&, auto& out, auto&) {
       each_group(2, Group::warp, [&](Index g) {
         Fragment own({64}, f32, 0);
         pipelined(9, [&](Index i) { add_row(x, i, own); });
         parallel(own, [&](Index i) { out(g, i) = own(i); });
       });
     },
     0, 0},
};

INSTANTIATE_TEST_SUITE_P(Table, CopyRingLoops, ::testing::ValuesIn(rings_cases),
                         [](const auto& info) { return std::string(info.param.name); });

// Two tiles of 48 KB in two slots fill shared memory; of 16 KB a step's fragment has slots beside them.
Kernel tiles_beside_a_fragment(int columns) {
  return kernel("beside", [&] {
    Dim M("M");
    Tensor x = input("x", {M, columns}, f32), y = input("y", {M, columns}, f32),
           z = input("z", {M, columns}, f32), out = output("out", {M, columns}, f32);
    grid(1, {.threads = 512}, [&](Index) {
      pipelined(M, {.stages = 2}, [&](Index i) {
        Shared a({columns}, f32), b({columns}, f32);
        copy(x.slice(i).at(0), a);
        copy(y.slice(i).at(0), b);
        Fragment own = load(z.slice(i).at(0), {columns}, f32);
        parallel(own, [&](Index j) { own(j) += a(j) * b(columns - 1 - j); });
        copy(own, out.slice(i).at(0));
      });
    });
  });
}

TEST(CopyRingLoop, LeavesFragmentsBehindTilesOfTheProgram) {
  for (const auto& [columns, tiles] : {std::pair{4096, 3}, {12288, 2}}) {
    const testing::Lowered lowered(tiles_beside_a_fragment(columns), hopper);
    const auto& loops = lowered.plan.grids[0].copy_rings.loops;
    ASSERT_EQ(loops.size(), 1U) << columns;
    EXPECT_EQ(loops.begin()->second.tiles.size(), static_cast<std::size_t>(tiles)) << columns;
  }
}

// A loop that loads a fragment around one that brings a tile in two slots.
Kernel tile_in_a_loop_of_fragments(int columns) {
  return kernel("inside", [&] {
    Dim M("M"), N("N");
    Tensor x = input("x", {M, columns}, f32), y = input("y", {N, columns}, f32),
           out = output("out", {M, columns}, f32);
    grid(1, {.threads = 512}, [&](Index) {
      pipelined(M, {.stages = 2}, [&](Index i) {
        Fragment own = load(x.slice(i).at(0), {columns}, f32);
        pipelined(N, {.stages = 2}, [&](Index k) {
          Shared a({columns}, f32);
          copy(y.slice(k).at(0), a);
          parallel(own, [&](Index j) { own(j) += a(columns - 1 - j); });
        });
        copy(own, out.slice(i).at(0));
      });
    });
  });
}

// What the outer loop loads has slots beside tiles of 16 KB, and leaves 64 KB to them.
TEST(CopyRingLoop, LeavesSlotsToLoopsInside) {
  for (const auto& [columns, loops] : {std::pair{4096, 2U}, {16384, 1U}}) {
    const testing::Lowered lowered(tile_in_a_loop_of_fragments(columns), hopper);
    const CopyRings& rings = lowered.plan.grids[0].copy_rings;
    EXPECT_EQ(rings.loops.size(), loops) << columns;
    const bool inside = std::any_of(rings.tiles.begin(), rings.tiles.end(),
                                    [](const auto* tile) { return tile->name.find("ahead") == std::string::npos; });
    EXPECT_TRUE(inside) << columns;
  }
}

}  // namespace copy_ring_loops_test
}  // namespace tegula::passes
