// Which accesses of a block are known to be to different rows of a tensor.
#include "passes/cuda/places_in_block.hpp"

#include <gtest/gtest.h>

#include "ir/effects.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace places_in_block_test {

using namespace lang;

struct PlacesCase {
  const char* name;
  bool apart;
  Expr (*row)(const Index& x, const Index& step, const Tensor& list, int i);
};

void PrintTo(const PlacesCase& c, std::ostream* out) { *out << c.name; }

class PlacesOf : public ::testing::TestWithParam<PlacesCase> {};

TEST_P(PlacesOf, TwoStoresOfAStep) {
  const PlacesCase& c = GetParam();
  const Kernel program = kernel("rows", [&] {
    Dim N("N"), M("M");
    Tensor y = output("y", {N, M}, f32), list = input("list", {N}, i32);
    grid(N, [&](Index x) {
      serial(M, [&](Index step) {
        for (int i = 0; i < 2; ++i) y(c.row(x, step, list, i), step) = 1.f;
      });
    });
  });
  const ir::Grid& grid = program.ir()->grids[0];
  std::vector<PlacesInBlock> stores;
  for (const ir::Region& r : ir::all_effects(grid.body).regions)
    if (r.touch == ir::Touch::write) stores.push_back(places_in_block(*r.view, r.index, grid.index));
  ASSERT_EQ(stores.size(), 2U);
  EXPECT_TRUE(are_same(stores[0], stores[0]));
  EXPECT_EQ(are_apart(stores[0], stores[1]), c.apart);
  EXPECT_FALSE(are_apart(stores[0], stores[0]));
}

using Row = Expr (*)(const Index& x, const Index& step, const Tensor& list, int i);
constexpr Row neighbours = [](const Index&x, const Index&, const Tensor&, int i) { return x * 2 + i; },
              reordered = [](const Index&x, const Index&, const Tensor&, int i) { return i + 2 * x; },
              both = [](const Index&x, const Index&, const Tensor&, int) { return x * 2 + 1; },
              other_base = [](const Index&x, const Index&, const Tensor&, int i) { return x * (1 + i); },
              of_step = [](const Index&x, const Index&step, const Tensor&, int i) { return x + step + i; },
              of_list = [](const Index&x, const Index&, const Tensor&list, int i) { return list(x) + i; };

INSTANTIATE_TEST_SUITE_P(
    Rows, PlacesOf,
    ::testing::Values(PlacesCase{"neighbours", true, neighbours}, PlacesCase{"reordered", true, reordered},
                      PlacesCase{"the_same", false, both}, PlacesCase{"other_base", false, other_base},
                      PlacesCase{"of_the_step", false, of_step}, PlacesCase{"of_a_list", false, of_list}),
    [](const auto& info) { return std::string(info.param.name); });

// Of a tile: slices by their limits, along both dimensions; a row that the step chooses is any row.
TEST(PartsOfTiles, AreKnownByConstantSlices) {
  const Kernel program = kernel("parts", [&] {
    Dim M("M");
    Tensor y = output("y", {M, 32, 32}, f32);
    grid(1, [&](Index) {
      serial(M, [&](Index step) {
        Shared tile({32, 32}, f32);
        const auto half = [](int i) { return range(i * 16, i * 16 + 16); };
        fill(tile.slice(half(0), half(1)), 1);
        fill(tile.slice(half(1), half(1)), 2);
        fill(tile.slice(half(0)).T(), 3);
        fill(tile.slice(step % 32), 4);
        copy(tile, y.slice(step));
      });
    });
  });
  std::vector<PartOfTile> parts;
  for (const ir::Region& r : ir::all_effects(program.ir()->grids[0].body).regions)
    if (r.touch == ir::Touch::write && r.view->is_tile()) parts.push_back(part_of_tile(*r.view));
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_TRUE(are_apart(parts[0], parts[1]));
  EXPECT_FALSE(are_apart(parts[0], parts[2]));
  EXPECT_TRUE(are_apart(parts[1], parts[2]));
  for (const PartOfTile& part : parts) {
    EXPECT_TRUE(part == part);
    EXPECT_FALSE(are_apart(part, part));
    EXPECT_FALSE(are_apart(part, parts[3]));
    EXPECT_FALSE(are_apart(part, PartOfTile{}));
  }
}

}  // namespace places_in_block_test
}  // namespace tegula::passes
