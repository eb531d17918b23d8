// Warp groups that leave steps out which concern none of their rows, while others multiply.
#include <gtest/gtest.h>

#include <cmath>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace when_rows_test {

constexpr std::chrono::seconds most_time{60};
constexpr int columns = 48, depth = 32, steps = 9;

struct Rows {
  const char* name;
  int rows, runs;
  const char* decides;       // each warp group, and within it each warp, for itself; or the block: ""
  bool from_shared = false;  // it reads what all threads write in every step
  bool mirrored = false;     // elements are added to others of their row
  int together = 0;          // warps of a group, if it is said
};

// Where flag(n, run): c += a b_n, and the largest of each row.
lang::Kernel chosen_products(const Rows& c) {
  using namespace lang;
  return kernel("chosen_products", [&] {
    lang::Tensor a = input("a", {c.rows, depth}, bf16), b = input("b", {steps * depth, columns}, bf16),
                 flags = input("flags", {steps, c.runs}, i32), out = output("out", {c.rows, columns}, f32),
                 most = output("most", {c.rows}, f32);
    grid(1, {.threads = 2 * c.rows}, [&](Index) {
      Shared a_tile({c.rows, depth}, bf16);
      copy(a.at(0, 0), a_tile);
      Fragment sum({c.rows, columns}, f32, 0), largest({c.rows}, f32, -inf);
      pipelined(steps, {.stages = 3}, [&](Index n) {
        Shared b_tile({depth, columns}, bf16);
        copy(b.at(n * depth, 0), b_tile);
        std::vector<Expr> chosen;
        Fragment in_registers({c.rows}, i32);
        Shared in_memory({c.rows}, i32);
        Tile& takes = c.from_shared ? static_cast<Tile&>(in_memory) : in_registers;
        for (int run = 0; run < c.runs; ++run) chosen.push_back(flags(n, run) != 0);
        parallel(takes, [&](Index i) {
          Var own = 0;
          for (int run = 0; run < c.runs; ++run)
            when(i / (c.rows / c.runs) == run, [&] { own = i32(chosen[static_cast<std::size_t>(run)]); });
          takes(i) = own;
        });
        RowsOptions options;
        if (c.together > 0) options.together.emplace(flags(n, 0) * 0 + c.together);
        when_rows(chosen, options, [&] {
          Fragment product({c.rows, columns}, f32, 0);
          gemm(a_tile, b_tile, product);
          parallel(product,
                   [&](Index i, Index j) { product(i, j) = select(takes(i) != 0, product(i, j), -inf); });
          reduce_max(product, largest);
          parallel(sum, [&](Index i, Index j) {
            when(takes(i) != 0, [&] { sum(i, j) += product(i, c.mirrored ? columns - 1 - j : Expr(j)); });
          });
        });
      });
      copy(sum, out.at(0, 0));
      copy(largest, most.at(0));
    });
  });
}

class WhenRows : public ::testing::TestWithParam<Rows> {};

TEST_P(WhenRows, LeavesOutWhatIsNotChosen) {
  const Watchdog watchdog("when_rows", most_time);
  const Rows& c = GetParam();
  const lang::Kernel program = chosen_products(c);
  const std::string text = text_with_roles(program);
  const bool warps = c.decides == std::string("warp"), groups = c.decides == std::string("warp_group");
  EXPECT_EQ(text.find("(warp == 0 ?") != std::string::npos, warps) << text;
  EXPECT_EQ(text.find("(warp_group == 0 ?") != std::string::npos, groups || (warps && c.rows > 64)) << text;
  const Tensor a = Tensor::random_normal({c.rows, depth}, bf16, 1),
               b = Tensor::random_normal({steps * depth, columns}, bf16, 2),
               flags = Tensor::random_integers({steps, c.runs}, i32, 3, 0, 2);
  for (int run = 0; run < c.runs; ++run) {  // a step of none, and one of all
    flags.set({2, run}, 0);
    flags.set({steps - 1, run}, 1);
  }
  const auto results = [&](Target target) {
    const Tensor out = Tensor::full({c.rows, columns}, f32, NAN), most = Tensor::full({c.rows}, f32, NAN);
    compile(program, target)(a, b, flags, out, most);
    return std::pair(out, most);
  };
  const auto expected = results(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated(), Target::cpu()}) {
    const auto got = results(target);
    EXPECT_TRUE(all_close(got.first, expected.first, 1e-3, 1e-3)) << c.name;
    EXPECT_TRUE(all_close(got.second, expected.second, 1e-3, 1e-3)) << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, WhenRows,
                         ::testing::Values(Rows{"two_groups", 128, 2, "warp_group"},
                                           Rows{"three_groups", 192, 3, "warp_group"},
                                           Rows{"shared_by_three_groups", 192, 3, "warp_group", true},
                                           Rows{"mirrored", 192, 3, "", false, true},
                                           Rows{"runs_of_half_a_group", 128, 4, ""},
                                           Rows{"warps_of_one_group", 64, 4, "warp"},
                                           Rows{"warps_of_three_groups", 192, 12, "warp"},
                                           Rows{"shared_by_warps", 192, 12, "warp", true},
                                           Rows{"together_from_one_on", 192, 12, "warp", false, false, 1},
                                           Rows{"always_alone", 128, 8, "warp", false, false, 5},
                                           Rows{"mirrored_in_warps", 192, 12, "", false, true},
                                           Rows{"runs_of_half_a_warp", 64, 8, ""}),
                         [](const auto& info) { return std::string(info.param.name); });

lang::Kernel scaled_products() {
  using namespace lang;
  return kernel("scaled_products", [&] {
    lang::Tensor a = input("a", {128, depth}, bf16), b = input("b", {steps * depth, columns}, bf16),
                 flags = input("flags", {steps, 8}, i32), out = output("out", {128, columns}, f32),
                 of_groups = output("parts", {2, 64, columns}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Shared a_tile({128, depth}, bf16);
      copy(a.at(0, 0), a_tile);
      Fragment sum({128, columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index n) {
        Shared b_tile({depth, columns}, bf16);
        copy(b.at(n * depth, 0), b_tile);
        gemm(a_tile, b_tile, sum);
        std::vector<Expr> chosen;
        for (int run = 0; run < 8; ++run) chosen.push_back(flags(n, run) != 0);
        when_rows(chosen, [&] {
          parallel(sum, [&](Index i, Index j) { sum(i, j) *= select(flags(n, i / 16) != 0, 0.5f, 1.0f); });
        });
      });
      copy(sum, out.at(0, 0));
      each_group(2, Group::warpgroup, [&](Index g) {
        Fragment tile({64, columns}, f32, 0);
        std::vector<Expr> chosen;
        for (int run = 0; run < 4; ++run) chosen.push_back(flags(g, run) != 0);
        when_rows(chosen, [&] {
          parallel(tile,
                   [&](Index i, Index j) { tile(i, j) = select(flags(g, i / 16) != 0, f32(i + j), 0.0f); });
        });
        copy(tile, of_groups.slice(g).at(0, 0));
      });
    });
  });
}

// A branch without products, of the block's warps and of those of instances, whose warps are no runs of the
// block's rows.
TEST(WhenRowsOfWarps, DecideWithoutProductsButNotInInstances) {
  const Watchdog watchdog("when_rows without products", most_time);
  const lang::Kernel program = scaled_products();
  const std::string text = text_with_roles(program);
  EXPECT_NE(text.find("const int warp = "), std::string::npos) << text;
  const Tensor a = Tensor::random_normal({128, depth}, bf16, 1),
               b = Tensor::random_normal({steps * depth, columns}, bf16, 2),
               flags = Tensor::random_integers({steps, 8}, i32, 3, 0, 2);
  const auto results = [&](Target target) {
    const Tensor out = Tensor::full({128, columns}, f32, NAN),
                 of_groups = Tensor::full({2, 64, columns}, f32, NAN);
    compile(program, target)(a, b, flags, out, of_groups);
    return std::pair(out, of_groups);
  };
  const auto expected = results(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated(), Target::cpu()}) {
    const auto got = results(target);
    EXPECT_TRUE(all_close(got.first, expected.first, 1e-3, 1e-3));
    EXPECT_TRUE(all_close(got.second, expected.second, 0));
  }
}

}  // namespace
}  // namespace tegula::emulation
