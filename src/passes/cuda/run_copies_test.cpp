// Which tiles come as runs of memory.
#include "passes/cuda/run_copies.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace run_copies_test {

using namespace lang;

struct Written {
  const char* name;
  std::size_t runs, anywhere;
  // Of x [M, 257], y [M, 264] and z [M, N], what a step does.
  std::function<void(const Tensor& x, const Tensor& y, const Tensor& z, Fragment& sum, const Expr& step)>
      body;
};
void PrintTo(const Written& c, std::ostream* out) { *out << c.name; }

void add(Fragment& sum, const Shared& tile, const Expr& row) {
  parallel(sum, [&](Index j) { sum(j) += f32(tile(row, j)); });
}

const Written all_runs[] = {
    {"rows", 1, 1,
     [](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({2, 257}, bf16);
       copy(x.at(step * 2), tile);
       add(sum, tile, 1);
     }},
    {"a_part_of_a_row", 1, 1,
     [](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({64}, bf16);
       copy(x.slice(step).at(64), tile);
       parallel(sum, [&](Index j) { sum(j) += f32(tile(j % 64)); });
     }},
    {"parts_of_rows", 0, 0,
     [](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({2, 64}, bf16);
       copy(x.at(step * 2, 64), tile);
       parallel(sum, [&](Index j) { sum(j) += f32(tile(1, j % 64)); });
     }},
    {"rows_of_whole_pieces", 0, 0,
     [](const Tensor&, const Tensor& y, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({2, 264}, bf16);
       copy(y.at(step * 2), tile);
       add(sum, tile, 1);
     }},
    {"rows_of_unknown_length", 0, 0,
     [](const Tensor&, const Tensor&, const Tensor& z, Fragment& sum, const Expr& step) {
       Shared tile({2, 264}, bf16);
       copy(z.at(step * 2, 0), tile);
       add(sum, tile, 1);
     }},
    {"filled_with_ones", 0, 0,
     [](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({2, 257}, bf16);
       copy(x.at(step * 2), tile, {.fill = 1});
       add(sum, tile, 1);
     }},
    {"of_another_type", 0, 0,
     [](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({2, 257}, f16);
       copy(x.at(step * 2), tile);
       add(sum, tile, 1);
     }},
    {"changed_in_place", 0, 0,
     [](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
       Shared tile({2, 257}, bf16);
       copy(x.at(step * 2), tile);
       parallel(sum, [&](Index j) { tile(0, j) = bf16(sum(j)); });
       add(sum, tile, 1);
     }},
};

CudaPlan plan_of(const Written& c, const CudaTarget& target) {
  const Kernel program = kernel("runs", [&] {
    Dim M("M"), N("N");
    Tensor x = input("x", {M, 257}, bf16), y = input("y", {M, 264}, bf16), z = input("z", {M, N}, bf16),
           out = output("out", {257}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment sum({257}, f32, 0);
      pipelined(M / 2, {.stages = 3}, [&](Index step) { c.body(x, y, z, sum, step); });
      copy(sum, out);
    });
  });
  return testing::Lowered(program, target).plan;
}

class Runs : public ::testing::TestWithParam<Written> {};

TEST_P(Runs, AreThoseOfRowsThatEndWithinPieces) {
  const Written& c = GetParam();
  for (const CudaTarget& target :
       {CudaTarget{80}, CudaTarget{90}, CudaTarget{.architecture = 90, .copy_engine = false}}) {
    const CudaPlan plan = plan_of(c, target);
    const CopyRings& rings = plan.grids[0].copy_rings;
    EXPECT_EQ(rings.runs.size(), c.runs);
    EXPECT_EQ(rings.anywhere.size(), c.anywhere);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Runs, ::testing::ValuesIn(all_runs),
                         [](const auto& info) { return std::string(info.param.name); });

// Reads the last row of a tile of some so often.
Written read(const char* name, int rows, int times) {
  return {name, 1, 1, [=](const Tensor& x, const Tensor&, const Tensor&, Fragment& sum, const Expr& step) {
            Shared tile({rows, 257}, bf16);
            copy(x.at(step * rows), tile);
            for (int i = 0; i < times; ++i) {
              add(sum, tile, rows - 1);
              const Var all = reduce_sum(sum).scalar();
              parallel(sum, [&](Index j) { sum(j) -= all; });
            }
          }};
}

TEST(Runs, AreLaidDownIfTheyAreOneRowThatLoopsReadAgain) {
  const auto laid = [](const Written& c) { return plan_of(c, {90}).grids[0].copy_rings.laid.size(); };
  EXPECT_EQ(laid(read("once", 1, 1)), 0u);
  EXPECT_EQ(laid(read("again", 1, 2)), 1u);
  EXPECT_EQ(laid(read("again_of_two_rows", 2, 2)), 0u);
}

TEST(Runs, HaveRoomBesideThem) {
  const ir::Buffer tile{
      "tile", ir::Space::shared, ir::Role::tile, bf16, {ir::constant(i32, 1), ir::constant(i32, 257)}, false,
      {}};
  const std::int64_t bytes = 257 * 2;
  EXPECT_GE(slot_bytes_of_run(tile), bytes + bytes_before_run + 15 + 48);
  EXPECT_EQ(slot_bytes_of_run(tile) % 128, 0);
}

}  // namespace run_copies_test
}  // namespace tegula::passes
