// Which tiles a step brings share a ring.
#include "passes/cuda/shared_rings.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/elements.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace shared_rings_test {

using namespace lang;

enum class Read { between, before_tile, behind_tile, with_tile };

struct VectorCase {
  const char* name;
  Read read = Read::between;
  int elements = 64;  // of the vector
  bool looked_up = false, declared_first = false;
  std::size_t rings = 2;
};

void PrintTo(const VectorCase& c, std::ostream* out) { *out << c.name; }

// Scores with rows of x, from which a number of each row is subtracted, times the rows: tile `rows` is used
// first and last in a step.
lang::Kernel program(const VectorCase& c) {
  return kernel("program", [&] {
    Dim N("N");
    Tensor q = input("q", {64, 64}, bf16), x = input("x", {N, 64}, bf16), y = input("y", {N, 64}, bf16),
           base = input("base", {N}, f32), list = input("list", {N}, i32), out = output("out", {64, 64}, f32);
    grid(1, [&](Index) {
      Shared left({64, 64}, bf16);
      copy(q.at(0, 0), left);
      Fragment sum({64, 64}, f32, 0), extra({64, 64}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index step) {
        std::optional<Shared> numbers;
        const auto bring = [&] {
          numbers.emplace(Shared({c.elements}, f32));
          if (c.looked_up)
            parallel(*numbers, [&](Index i) { (*numbers)(i) = base(list(step * 64 + i)); });
          else
            copy(base.at(step * 64), *numbers);
        };
        if (c.declared_first) bring();
        Shared rows({64, 64}, bf16), others({64, 64}, bf16);
        copy(x.at(step * 64, 0), rows);
        copy(y.at(step * 64, 0), others);
        if (!c.declared_first) bring();
        const auto subtract = [&](Fragment& from) {
          parallel(from, [&](Index i, Index j) { from(i, j) -= (*numbers)(j); });
        };
        Fragment scores({64, 64}, f32, 0), weights({64, 64}, f32, 0);
        if (c.read == Read::before_tile) subtract(extra);
        gemm(left, rows.T(), scores);
        if (c.read == Read::between || c.read == Read::before_tile) subtract(scores);
        gemm(left, others.T(), weights);
        parallel(weights, [&](Index i, Index j) { weights(i, j) *= scores(i, j); });
        gemm(weights.to(bf16), rows, sum);
        if (c.read == Read::behind_tile) subtract(sum);
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) += extra(i, j); });
      copy(sum, out.at(0, 0));
    });
  });
}

class SharedRings : public ::testing::TestWithParam<VectorCase> {};

TEST_P(SharedRings, CarryVectors) {
  const VectorCase& c = GetParam();
  const testing::Lowered lowered(program(c));
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  const auto in_loop = std::count_if(roles->rings.begin(), roles->rings.end(),
                                     [](const RingPlan& ring) { return ring.in_loop; });
  EXPECT_EQ(static_cast<std::size_t>(in_loop), c.rings);
}

INSTANTIATE_TEST_SUITE_P(
    Reads, SharedRings,
    ::testing::Values(VectorCase{"between the uses of a tile"},
                      VectorCase{"declared before the tile", Read::between, 64, false, true},
                      VectorCase{"before the tile", Read::before_tile, 64, false, false, 3},
                      VectorCase{"behind the tile", Read::behind_tile, 64, false, false, 3},
                      VectorCase{"a tile, not a vector", Read::between, 64 * 16, false, false, 3},
                      VectorCase{"looked up by threads", Read::between, 64, true, false, 3}));

RingTile box_of(const ir::Body& scope, std::int64_t elements, std::size_t first, std::size_t last) {
  const auto tile = new_tile("tile", ir::Space::shared, f32, {ir::constant(i32, elements)}, {});
  return {.tile = tile, .scope = &scope, .first = first, .last = last, .is_box = true};
}

// The tile that is used for the shortest time carries a vector, and none that is carried itself.
TEST(SharedRingsOfTiles, CarryByTheShortest) {
  const ir::Body scope;
  const std::vector<RingTile> tiles{box_of(scope, 65536, 0, 9), box_of(scope, 4096, 1, 6),
                                    box_of(scope, 64, 2, 4), box_of(scope, 8192, 2, 8)};
  const auto rings = shared_rings(tiles);
  ASSERT_EQ(rings.size(), 2U);
  EXPECT_EQ(rings[0], (std::vector{&tiles[0], &tiles[1]}));
  EXPECT_EQ(rings[1], (std::vector{&tiles[3], &tiles[2]}));
}

// Pieces by threads, and what the producer waits for, come alone.
TEST(SharedRingsOfTiles, CarryBoxesOnly) {
  const ir::Body scope, other;
  std::vector<RingTile> tiles{box_of(scope, 65536, 0, 9), box_of(scope, 64, 2, 4), box_of(scope, 64, 2, 5),
                              box_of(other, 64, 2, 6)};
  tiles[1].is_box = false, tiles[2].awaited = true;
  EXPECT_EQ(shared_rings(tiles).size(), 4U);
}

}  // namespace shared_rings_test
}  // namespace tegula::passes
