// Which grids of a call run beside the one before.
#include "passes/cuda/grid_waits.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tegula/lang.hpp"

namespace tegula::passes {
namespace grid_waits_test {

using namespace lang;

// A letter for each grid: never, at its start, at its end.
std::string waits_of(const std::function<void()>& body) {
  std::string result;
  for (const GridWait wait : plan_grid_waits(*kernel("waits", body).ir()))
    result += wait == GridWait::never ? 'n' : wait == GridWait::at_begin ? 'b' : 'e';
  return result;
}

void copies(const Tensor& from, const Tensor& to) {
  grid(1, [&](Index) { copy(load(from.at(0), {16}), to.at(0)); });
}

void multiplies(const Tensor& from, const Tensor& to) {
  grid(1, [&](Index) {
    Shared a({16, 16}, f32);
    Fragment sum({16, 16}, f32, 0);
    copy(from.at(0, 0), a);
    gemm(a, a, sum);
    copy(sum, to.at(0, 0));
  });
}

TEST(GridWaits, ComeFirstWhereAGridReadsWhatTheOneBeforeWrote) {
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16}, f32), b = workspace("b", {16}, f32), c = output("c", {16}, f32);
              copies(a, b);
              copies(b, c);
            }),
            "nb");
}

TEST(GridWaits, ComeFirstWhereAGridWritesWhatTheOneBeforeReads) {
  EXPECT_EQ(waits_of([] {
              Tensor a = inout("a", {16}, f32), b = input("b", {16}, f32), c = output("c", {16}, f32);
              copies(a, c);
              copies(b, a);
            }),
            "nb");
}

TEST(GridWaits, ComeFirstWhereBothWrite) {
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16}, f32), b = input("b", {16}, f32), c = output("c", {16}, f32);
              copies(a, c);
              copies(b, c);
            }),
            "nb");
}

TEST(GridWaits, ComeLastWhereNothingWrittenIsShared) {
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16}, f32), b = output("b", {16}, f32), c = output("c", {16}, f32);
              copies(a, b);
              copies(a, c);
            }),
            "ne");
}

// The third grid shares nothing with its neighbour, but does with the first, which may still run beside the
// second.
TEST(GridWaits, AreLastOfOneOfTwoNeighboursOnly) {
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16}, f32), b = output("b", {16}, f32), c = output("c", {16}, f32),
                     d = output("d", {16}, f32);
              copies(a, b);
              copies(a, c);
              copies(b, d);
            }),
            "neb");
}

TEST(GridWaits, KnowTensorsThatMayBeTheSame) {
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16}, f32), b = output("b", {16}, f32), c = input("c", {16}, f32),
                     d = output("d", {16}, f32), e = output("e", {16}, f32);
              may_alias(a, b);
              may_alias(b, c);
              copies(a, e);
              copies(c, d);
              copies(d, b);
            }),
            "neb");
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16}, f32), b = output("b", {16}, f32), c = input("c", {16}, f32),
                     d = output("d", {16}, f32);
              may_alias(a, b);
              may_alias(b, c);
              copies(a, b);
              copies(c, d);
            }),
            "nb");
}

// A processor that ran the first grid may still have what the second has overwritten.
TEST(GridWaits, ComeFirstWhereACacheMayHoldWhatWasThereBefore) {
  const auto waits = [](bool read_before) {
    return waits_of([read_before] {
      Tensor a = inout("a", {16}, f32), b = input("b", {16}, f32), c = output("c", {16}, f32),
             d = output("d", {16}, f32), e = output("e", {16}, f32);
      copies(read_before ? a : b, c);
      copies(c, a);
      copies(a, d);
      copies(a, e);
    });
  };
  EXPECT_EQ(waits(true), "nbbb");
  EXPECT_EQ(waits(false), "nbbe");
}

TEST(GridWaits, PreferGridsThatMultiply) {
  EXPECT_EQ(waits_of([] {
              Tensor a = input("a", {16, 16}, f32), x = input("x", {16}, f32), b = output("b", {16, 16}, f32),
                     c = output("c", {16, 16}, f32), y = output("y", {16}, f32);
              copies(x, y);
              multiplies(a, b);
              multiplies(a, c);
            }),
            "nbe");
}

}  // namespace
}  // namespace tegula::passes
