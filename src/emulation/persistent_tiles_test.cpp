// Grids without products whose blocks stay: a producer brings their tiles by the copy engine. On the emulated
// Hopper beside the interpreter.
#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace persistent_tiles_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

enum class Way { at_top, in_loop, beside_sums };

struct TilesCase {
  std::string name;
  Way way;
  std::int64_t rows, columns;
};
void PrintTo(const TilesCase& c, std::ostream* out) { *out << c.name; }

// Tiles of 16 x 64 of x, times a vector that a step loads too; sums along rows in the third way.
lang::Kernel program(Way way, bool persistent = true) {
  return kernel("scaled", [&] {
    Dim M("M"), N("N");
    lang::Tensor x = input("x", {M, N}, f32), factors = input("factors", {N}, f32),
                 out = output("out", {M, N}, f32);
    const auto tile = [&](const Expr& row, const Expr& column, Fragment* sums) {
      Shared own({16, 64}, f32), by({64}, f32);
      copy(x.at(row, column), own);
      copy(factors.at(column), by);
      Fragment result({16, 64}, f32);
      parallel(result, [&](Index i, Index j) { result(i, j) = own(i, j) * by(j); });
      if (sums != nullptr) {
        reduce_sum(result, *sums);
        parallel(result, [&](Index i, Index j) { result(i, j) = (*sums)(i); });
      }
      copy(result, out.at(row, column));
    };
    if (way == Way::at_top) {
      grid(ceildiv(N, 64), ceildiv(M, 16), {.persistent = persistent},
           [&](Index j, Index i) { tile(i * 16, j * 64, nullptr); });
      return;
    }
    grid(ceildiv(M, 16), {.persistent = persistent}, [&](Index i) {
      Fragment sums({16}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 3},
                [&](Index j) { tile(i * 16, j * 64, way == Way::beside_sums ? &sums : nullptr); });
    });
  });
}

class PersistentTiles : public ::testing::TestWithParam<TilesCase> {};

TEST_P(PersistentTiles, AreAsInterpreted) {
  const TilesCase& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  const lang::Kernel scaled = program(c.way);
  EXPECT_NE(text_with_roles(scaled).find("tg::load_box"), std::string::npos);
  expect_as_interpreted(scaled,
                        {Tensor::random_integers({c.rows, c.columns}, f32, 1, -9, 9),
                         Tensor::random_integers({c.columns}, f32, 2, -9, 9)},
                        {c.rows, c.columns}, 0,
                        {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
}
INSTANTIATE_TEST_SUITE_P(All, PersistentTiles,
                         ::testing::Values(TilesCase{"one_tile", Way::at_top, 16, 64},
                                           TilesCase{"cut_tiles", Way::at_top, 41, 200},
                                           TilesCase{"odd_rows", Way::at_top, 33, 67},
                                           TilesCase{"one_element", Way::in_loop, 1, 1},
                                           TilesCase{"steps", Way::in_loop, 50, 516},
                                           TilesCase{"more_slots_than_steps", Way::in_loop, 20, 100},
                                           TilesCase{"odd_steps", Way::in_loop, 17, 131},
                                           TilesCase{"sums", Way::beside_sums, 35, 260}),
                         [](const auto& info) { return info.param.name; });

TEST(PersistentTiles, AreBroughtByAllThreadsUnlessBlocksStay) {
  const std::string text = codegen::print_cuda(Signature(program(Way::in_loop, false).ir()), {90}).text;
  EXPECT_EQ(text.find("---- producer"), std::string::npos) << text;
}

// Each group brings a tile for itself, in a branch or not, beside one that a producer brings for all or
// without.
lang::Kernel tiles_of_groups(bool in_branch, bool beside) {
  return kernel("of_groups", [&] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, f32), factors = input("factors", {64}, f32),
                 out = output("out", {M, 64}, f32);
    grid(ceildiv(M, 16), {.persistent = true}, [&](Index i) {
      Shared by({64}, f32);
      if (beside) copy(factors, by);
      const auto groups = [&] {
        each_group(2, Group::warpgroup, [&](Index g) {
          Shared own({8, 64}, f32);
          copy(x.at(i * 16 + g * 8, 0), own);
          Fragment result({8, 64}, f32);
          parallel(result,
                   [&](Index r, Index c) { result(r, c) = own(r, c) * (beside ? by(c) : factors(c)); });
          copy(result, out.at(i * 16 + g * 8, 0));
        });
      };
      if (in_branch)
        when(M > 1, groups);
      else
        groups();
    });
  });
}

TEST(PersistentTiles, OfGroupsAreTheirOwn) {
  const Watchdog watchdog("tiles of groups", most_time);
  for (const bool in_branch : {false, true})
    for (const bool beside : {false, true}) {
      const lang::Kernel program = tiles_of_groups(in_branch, beside);
      const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
      EXPECT_EQ(text.find("---- producer") != std::string::npos, beside) << text;
      expect_as_interpreted(
          program,
          {Tensor::random_integers({100, 64}, f32, 1, -9, 9), Tensor::random_integers({64}, f32, 2, -9, 9)},
          {100, 64}, 0, {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
    }
}

// Each step doubles the rows that the step before has written under another name: no role may bring them
// ahead, neither as values nor as operands of products.
lang::Kernel doubled_in_place(bool by_product) {
  return kernel("doubled", [&] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, bf16), w = input("w", {64, 64}, bf16),
                 out = output("out", {M, 64}, bf16);
    may_alias(x, out);
    grid(1, {.persistent = true}, [&](Index) {
      pipelined(ceildiv(M, 64), {.stages = 3}, [&](Index i) {
        Shared own({64, 64}, bf16), by({64, 64}, bf16);
        copy(x.at(i * 64, 0), own);
        copy(w.at(0, 0), by);
        Fragment result({64, 64}, f32, 0);
        if (by_product)
          gemm(own, by, result);
        else
          parallel(result, [&](Index r, Index c) { result(r, c) = own(r, c) * 64.f * by(r, c); });
        copy(result, out.at(i * 64 + 64, 0));
      });
    });
  });
}

TEST(PersistentTiles, AreNotBroughtAheadOfWritesByAnotherName) {
  for (const bool by_product : {false, true}) {
    const Tensor rows = Tensor::full({256, 64}, bf16, 1);
    const std::vector<Argument> values{rows, Tensor::full({64, 64}, bf16, 1. / 32), rows};
    compile(doubled_in_place(by_product), tegula::Target::emulated_sm90()).call_in_order(values);
    const auto got = rows.values<double>();
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], 1 << i / 64 / 64) << "element " << i << (by_product ? " of products" : "");
  }
}

// A producer brings a tile that is used before the block writes where it came from.
TEST(PersistentTiles, AreBroughtIfTheyAreUsedBeforeWritesByAnotherName) {
  for (const bool used_before : {true, false}) {
    const lang::Kernel program = kernel("used", [&] {
      Dim M("M");
      lang::Tensor x = input("x", {M, 64}, f32), out = output("out", {M, 64}, f32);
      may_alias(x, out);
      grid(ceildiv(M, 16), {.persistent = true}, [&](Index i) {
        Shared own({16, 64}, f32);
        copy(x.at(i * 16, 0), own);
        if (!used_before) copy(Fragment({16, 64}, f32, 7), out.at(i * 16, 0));
        Fragment result({16, 64}, f32);
        parallel(result, [&](Index r, Index c) { result(r, c) = own(r, c) + 1; });
        copy(result, out.at(i * 16, 0));
      });
    });
    const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
    EXPECT_EQ(text.find("---- producer") != std::string::npos, used_before) << text;
    const Tensor rows = Tensor::full({100, 64}, f32, 3);
    const std::vector<Argument> values{rows, rows};
    compile(program, tegula::Target::emulated_sm90()).call_in_order(values);
    EXPECT_EQ(rows.values<double>(), std::vector<double>(6400, 4));
  }
}

}  // namespace persistent_tiles_test
}  // namespace tegula::emulation
