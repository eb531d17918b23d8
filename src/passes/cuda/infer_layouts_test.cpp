// Which thread holds which element: fragments that meet element by element have one layout.
#include "passes/cuda/infer_layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace infer_layouts_test {

using namespace lang;

struct Fragments {
  Layouts layouts;
  std::vector<ir::BufferPtr> tiles;  // in the order of their declarations
  const layout::Layout& of(std::size_t i) const { return layouts.fragments.at(tiles[i].get()); }
};

Fragments fragments_of(const lang::Kernel& kernel) {
  const testing::Lowered lowered(kernel);
  Fragments result{lowered.plan.grids.front().layouts, {}};
  for (const auto* declared : testing::all_of<ir::Declare>(lowered.body()))
    if (declared->tile->space == ir::Space::fragment) result.tiles.push_back(declared->tile);
  return result;
}

// What a body does with the sum of a product [64, 64] of one warp group, and with a row of x.
lang::Kernel with_sum(const std::function<void(Fragment& sum, const Tensor& x)>& body) {
  return kernel("layouts", [&] {
    Tensor x = input("x", {64, 64}, bf16), out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared a({64, 64}, bf16);
      copy(x.at(0, 0), a);
      Fragment sum({64, 64}, f32, 0);
      gemm(a, a.T(), sum);
      body(sum, x);
      copy(sum, out.at(0, 0));
    });
  });
}

const layout::Layout accumulator = layout::wgmma_accumulator(64, 64, {1, 1});

// The elements of a row that a thread has one after the other.
std::int64_t run_of(const layout::Layout& layout) {
  const layout::Digit& first = layout.registers().front();
  return first.stride.back() == 1 ? first.extent : 1;
}

TEST(Layouts, AreThoseOfTheProduct) {
  const Fragments own = fragments_of(with_sum([](Fragment&, const Tensor&) {}));
  EXPECT_EQ(own.of(0), accumulator);
}

// Rows that end within 16 bytes: pieces of them in a thread, unless a tile in shared memory has its say, or
// the text can load no such pieces.
TEST(Layouts, CutRowsWhereOnlyTensorsAreMet) {
  const auto rows = [](bool by_tile, bool multiplies = false, tegula::DType type = bf16) {
    return fragments_of(kernel("rows", [&] {
      Tensor x = input("x", {16, 257}, type), out = output("out", {16, 257}, type);
      grid(1, {.threads = 128}, [&](Index) {
        Fragment own({16, 257}, type == f64 ? f64 : f32);
        if (by_tile) {
          Shared tile({16, 257}, bf16);
          copy(x.at(0, 0), tile);
          copy(tile, own);
        } else {
          copy(x.at(0, 0), own);
        }
        copy(own, out.at(0, 0));
      });
      if (!multiplies) return;
      Tensor product = output("product", {64, 64}, f32);
      grid(1, {.threads = 128}, [&](Index) {
        Shared a({64, 64}, bf16);
        clear(a);
        Fragment sum({64, 64}, f32, 0);
        gemm(a, a, sum);
        copy(sum, product);
      });
    }));
  };
  EXPECT_EQ(rows(false).of(0), layout::blocked_in_cut_rows(128, {16, 257}, 8));
  EXPECT_EQ(rows(true).of(0), layout::blocked(128, {16, 257}, 1));
  EXPECT_EQ(rows(false, true).of(0), layout::blocked(128, {16, 257}, 1));
  EXPECT_EQ(rows(false, false, f64).of(0), layout::blocked(128, {16, 257}, 1));
}

TEST(Layouts, SpreadToFragmentsOfTheSameLoop) {
  const Fragments own = fragments_of(with_sum([](Fragment& sum, const Tensor& x) {
    Fragment other({64, 64}, f32);
    copy(x.at(0, 0), other);
    parallel(sum, [&](Index i, Index j) { sum(i, j) += other(i, j); });
  }));
  EXPECT_EQ(own.of(0), accumulator);
  EXPECT_EQ(own.of(1), accumulator);
}

TEST(Layouts, OfRowsAreSlices) {
  const Fragments own = fragments_of(with_sum([](Fragment& sum, const Tensor&) {
    Fragment top = reduce_max(sum);
    parallel(sum, [&](Index i, Index j) { sum(i, j) -= top(i); });
  }));
  EXPECT_EQ(own.of(1), accumulator.slice(1));
}

TEST(Layouts, OfColumnsAreSlicesToo) {
  const Fragments own = fragments_of(with_sum([](Fragment& sum, const Tensor&) {
    Fragment column = reduce_sum(sum, 0);
    parallel(sum, [&](Index i, Index j) { sum(i, j) -= column(j); });
  }));
  EXPECT_EQ(own.of(1), accumulator.slice(0));
}

TEST(Layouts, OfOperandsInRegistersAreTheInstructions) {
  const Fragments own = fragments_of(with_sum([](Fragment& sum, const Tensor& x) {
    Shared b({64, 64}, bf16);
    copy(x.at(0, 0), b);
    Fragment p({64, 64}, bf16), more({64, 64}, f32, 0);
    copy(sum, p);
    gemm(p, b, more);
    parallel(sum, [&](Index i, Index j) { sum(i, j) += more(i, j); });
  }));
  EXPECT_EQ(own.of(1), layout::wgmma_operand_a(64, 64, {1, 1}));
}

TEST(Layouts, AreBlockedWhereNoProductIs) {
  const Fragments own = fragments_of(kernel("layouts", [&] {
    Tensor x = input("x", {16, 256}, f32), out = output("out", {16, 256}, f32);
    grid(1, {.threads = 128}, [&](Index) { copy(load(x.at(0, 0), {16, 256}), out.at(0, 0)); });
  }));
  // 32 elements a thread, four of them side by side: vectors of 16 bytes.
  const layout::Layout& blocked = own.of(0);
  EXPECT_EQ(blocked.register_count(), 32);
  for (std::int64_t thread : {0, 1, 127}) {
    const auto first = blocked.coordinates(thread, 0), last = blocked.coordinates(thread, 3);
    EXPECT_EQ(first[0], last[0]);
    EXPECT_EQ(first[1] + 3, last[1]);
    EXPECT_EQ(first[1] % 4, 0);
  }
}

// A sum over parts of the columns takes the elements where the product left them: 16 columns are two
// registers twice, of four lanes.
TEST(Layouts, OfReshapedFragmentsAreThoseOfTheProduct) {
  const Fragments own = fragments_of(with_sum([](Fragment& sum, const Tensor&) {
    Fragment part = reduce_sum(sum.reshape({64, 4, 16}), 2);
    parallel(sum, [&](Index i, Index j) { sum(i, j) -= 1; });
    parallel(part, [&](Index i, Index j) { part(i, j) += 1; });
  }));
  const auto moved = std::find_if(own.tiles.begin(), own.tiles.end(),
                                  [](const ir::BufferPtr& tile) { return tile->rank() == 3; });
  ASSERT_NE(moved, own.tiles.end());
  const layout::Layout& reshaped = own.layouts.fragments.at(moved->get());
  for (const std::int64_t thread : {0, 5, 127})
    for (const std::int64_t reg : {0, 3, 31}) {
      const auto at = accumulator.coordinates(thread, reg), own_at = reshaped.coordinates(thread, reg);
      EXPECT_EQ(own_at, (layout::Coordinates{at[0], at[1] / 16, at[1] % 16}));
    }
}

// Of the sums of 64 rows a thread has 16, as have the 15 lanes beside it.
TEST(Layouts, OfSumsThatOnlyGoToTensorsAreShared) {
  enum class Use { stored, beside_another, read_alone, needed_by_rows };
  const auto program = [](Use use) {
    return kernel("layouts", [&] {
      Tensor x = input("x", {64, 64}, f32), more = input("more", {64}, f32), out = output("out", {64}, f32),
             rows = output("rows", {64, 64}, f32);
      grid(1, {.threads = 64}, [&](Index) {
        Fragment own({64, 64}, f32);
        copy(x.at(0, 0), own);
        Fragment sum = reduce_sum(own);
        if (use == Use::needed_by_rows) parallel(own, [&](Index i, Index j) { own(i, j) -= sum(i); });
        if (use == Use::beside_another) {
          Fragment other({64}, f32);
          copy(more.at(0), other);
          parallel(sum, [&](Index i) { sum(i) += other(i); });
        }
        parallel(sum, [&](Index i) { out(i) = use == Use::read_alone ? sum(i) + sum(0) : sum(i); });
        copy(own, rows.at(0, 0));
      });
    });
  };
  for (const auto& [use, shared] :
       {std::pair(Use::stored, true), std::pair(Use::beside_another, true), std::pair(Use::read_alone, false),
        std::pair(Use::needed_by_rows, false)}) {
    const Fragments own = fragments_of(program(use));
    EXPECT_EQ(own.layouts.shares.contains(own.tiles[1].get()), shared) << static_cast<int>(use);
    EXPECT_EQ(own.of(1).register_count(), shared ? 1 : 16) << static_cast<int>(use);
  }
}

// Where neighbours are apart in memory, they go to different lanes.
TEST(Layouts, HoldNoPiecesOfWhatIsSpread) {
  for (const bool apart : {false, true}) {
    const Fragments own = fragments_of(kernel("layouts", [&] {
      Tensor x = input("x", {8192}, f32), out = output("out", {1}, f32);
      grid(1, {.threads = 128}, [&](Index) {
        Fragment f({1024}, f32);
        parallel(f, [&](Index i) { f(i) = x(apart ? i * 8 : Expr(i)); });
        Fragment sum = reduce_sum(f);
        out(0) = sum.scalar();
      });
    }));
    EXPECT_EQ(own.of(0).coordinates(1, 0)[0], apart ? 1 : 4);
  }
}

// A loop that stores elements of a byte takes 16 of them, though it reads a fragment first; behind a
// condition they would be stored one by one.
TEST(Layouts, OfBytesThatAreStoredByPieces) {
  const auto run = [](bool guarded) {
    return run_of(fragments_of(kernel("bytes", [&] {
                    Tensor out = output("out", {64, 64}, e4m3), n = input("n", {1}, i32);
                    grid(1, {.threads = 128}, [&](Index) {
                      Shared tile({64, 64}, f32);
                      clear(tile);
                      Fragment own = load(tile, {64, 64});
                      Expr end = n(0);
                      parallel(own, [&](Index i, Index j) {
                        const auto store = [&] { out(i, j) = own(i, j); };
                        if (guarded)
                          when(j / 4 < end, store);
                        else
                          store();
                      });
                    });
                  })).of(0));
  };
  EXPECT_EQ(run(false), 16);
  EXPECT_EQ(run(true), 4);
}

// What is read transposed is moved; it decides about no layout.
TEST(Layouts, DoNotFollowTransposedReads) {
  const Fragments own = fragments_of(with_sum([](Fragment& sum, const Tensor&) {
    Fragment transposed({64, 64}, f32);
    parallel(transposed, [&](Index i, Index j) { transposed(i, j) = sum(j, i); });
    parallel(sum, [&](Index i, Index j) { sum(i, j) += transposed(i, j); });
  }));
  EXPECT_EQ(own.of(0), accumulator);
  EXPECT_EQ(own.of(1), accumulator);
}

}  // namespace infer_layouts_test
}  // namespace tegula::passes
