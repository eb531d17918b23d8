// Which copies loops take the place of, and that results stay what they are.
#include "passes/copies_in_loops.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "ir/visit.hpp"
#include "passes/passes.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::codegen {
namespace copies_in_loops_test {

using namespace lang;
using lang::Tensor;

constexpr int columns = 80;  // five vectors
using Rows = std::function<void(Tensor& x, Tensor& out, Index& block)>;

lang::Kernel over_rows(DType type, const Rows& rows) {
  return kernel("over_rows", [&] {
    Dim M("M"), N("N");
    Tensor x = input("x", {M, N}, type), out = output("out", {M, N}, type);
    grid(ceildiv(M, 4), [&](Index block) { rows(x, out, block); });
  });
}

// Squares of differences from the mean, in a tile that is changed in place.
void in_place(Tensor& x, Tensor& out, Index& block) {
  Fragment own({4, columns}, f32);
  copy(x.at(block * 4), own);
  Fragment mean = reduce_sum(own, 1);
  parallel(own, [&](Index i, Index j) { own(i, j) = own(i, j) - mean(i) / float(columns); });
  parallel(own, [&](Index i, Index j) { own(i, j) = own(i, j) * own(i, j); });
  copy(own, out.at(block * 4));
}

// The same, each step in a tile of its own.
void apart(Tensor& x, Tensor& out, Index& block) {
  Fragment own({4, columns}, f32), differences({4, columns}, f32), squares({4, columns}, f32);
  copy(x.at(block * 4), own);
  Fragment mean = reduce_sum(own, 1);
  parallel(own, [&](Index i, Index j) { differences(i, j) = own(i, j) - mean(i) / float(columns); });
  parallel(own, [&](Index i, Index j) { squares(i, j) = differences(i, j) * differences(i, j); });
  copy(squares, out.at(block * 4));
}

// The same by way of a Shared tile of the tensor's type and a second copy.
void by_way_of_another(Tensor& x, Tensor& out, Index& block) {
  Shared first({4, columns}, x.type());
  copy(x.at(block * 4), first);
  Fragment own({4, columns}, f32);
  copy(first, own);
  Fragment mean = reduce_sum(own, 1);
  parallel(own, [&](Index i, Index j) { own(i, j) = own(i, j) - mean(i) / float(columns); });
  parallel(own, [&](Index i, Index j) { own(i, j) = own(i, j) * own(i, j); });
  copy(own, out.at(block * 4));
}

// The rounded tile loses bits of f32.
void rounded(Tensor& x, Tensor& out, Index& block) {
  Fragment own({4, columns}, f32), rounded({4, columns}, bf16);
  copy(x.at(block * 4), own);
  copy(x.at(block * 4), rounded);
  Fragment most = reduce_max(own, 1);
  parallel(own,
           [&](Index i, Index j) { own(i, j) = select(own(i, j) == most(i), 1.f, 0.f) + rounded(i, j); });
  copy(own, out.at(block * 4));
}

int copies(const lang::Kernel& program) {
  int count = 0;
  ir::for_each_stmt(passes::for_cpu(*program.ir()),
                    [&](const ir::Stmt& s) { count += ir::as<ir::Copy>(s) != nullptr; });
  return count;
}

void expect_as_interpreted(const lang::Kernel& program, const tegula::Tensor& x) {
  const auto result = [&](tegula::Target target) {
    const auto out = tegula::Tensor::full(x.shape(), x.dtype(), 7);
    tegula::compile(program, target)(x, out);
    return out;
  };
  const double tolerance = x.dtype() == f32 ? 1e-5 : 1e-2;
  EXPECT_EQ(tegula::first_difference(result(tegula::Target::cpu()), result(tegula::Target::interpreter()),
                                     tolerance, tolerance),
            std::nullopt);
}

TEST(CopiesInLoops, HoweverTheyAreWritten) {
  for (const DType type : {f32, bf16, f16})
    for (const Rows& rows : {Rows(in_place), Rows(apart), Rows(by_way_of_another), Rows(rounded)}) {
      const lang::Kernel program = over_rows(type, rows);
      EXPECT_EQ(copies(program), 0);
      for (const int n : {columns, 77, 3, 100}) {
        const auto x = tegula::Tensor::random_normal({11, n}, type, 1);
        expect_as_interpreted(program, x);
        expect_as_interpreted(program, tegula::Tensor::random_normal({n, 11}, type, 1).transpose(0, 1));
      }
    }
}

// Largest elements and sums of exponentials of rows that end within the tile, whose rest is -inf.
void filled(Tensor& x, Tensor& out, Index& block) {
  Fragment own({4, columns}, f32);
  copy(x.at(block * 4), own, {.fill = -inf});
  Fragment most = reduce_max(own, 1);
  parallel(own, [&](Index i, Index j) { own(i, j) = exp(own(i, j) - most(i)); });
  Fragment sum = reduce_sum(own, 1);
  parallel(own, [&](Index i, Index j) {
    const Var share = own(i, j) / sum(i);
    own(i, j) = share * share;
  });
  copy(own, out.at(block * 4));
}

TEST(CopiesInLoops, FillWithOtherNumbers) {
  for (const DType type : {f32, bf16}) {
    const lang::Kernel program = over_rows(type, filled);
    EXPECT_EQ(copies(program), 0);
    for (const int n : {columns, 77, 3, 1}) {
      expect_as_interpreted(program, tegula::Tensor::random_normal({11, n}, type, 1));
      expect_as_interpreted(program, tegula::Tensor::random_normal({n, 11}, type, 1).transpose(0, 1));
    }
  }
  // What a tile holds of a number that is not one of its own.
  for (const DType type : {f32, bf16}) {
    const lang::Kernel rounded = over_rows(type, [](Tensor& x, Tensor& out, Index& block) {
      Fragment own({4, columns}, bf16), result({4, columns}, f32);
      copy(x.at(block * 4), own, {.fill = 9.1});
      parallel(result, [&](Index i, Index j) { result(i, j) = own(i, j) - 9; });
      Fragment most = reduce_max(result, 1);
      parallel(result, [&](Index i, Index j) { result(i, j) = most(i); });
      copy(result, out.at(block * 4));
    });
    EXPECT_EQ(copies(rounded), 0);
    expect_as_interpreted(rounded, tegula::Tensor::random_normal({11, 77}, type, 1));
  }
  // What stands in front of a tensor, or outside of a slice, is asked for by the copy.
  const lang::Kernel before = over_rows(f32, [](Tensor& x, Tensor& out, Index& block) {
    Fragment own({4, columns}, f32);
    copy(x.at(block * 4, -3), own, {.fill = 5});
    parallel(own, [&](Index i, Index j) { own(i, j) = own(i, j) + 1; });
    copy(own, out.at(block * 4));
  });
  EXPECT_EQ(copies(before), 1);
  expect_as_interpreted(before, tegula::Tensor::random_normal({11, 77}, f32, 1));
}

TEST(CopiesInLoops, NotOfTensorsThatAreWrittenNorOfTilesThatOthersRead) {
  const lang::Kernel changed = kernel("changed", [] {
    Tensor x = inout("x", {4, columns}, f32), out = output("out", {4, columns}, f32);
    grid(1, [&](Index) {
      Fragment own({4, columns}, f32);
      copy(x.at(0), own);
      parallel(own, [&](Index i, Index j) { x(i, j) = 1; });
      parallel(own, [&](Index i, Index j) { own(i, j) = own(i, j) + 1; });
      copy(own, out.at(0));
    });
  });
  EXPECT_EQ(copies(changed), 1);
  const lang::Kernel scanned = over_rows(f32, [](Tensor& x, Tensor& out, Index& block) {
    Fragment own({4, columns}, f32);
    copy(x.at(block * 4), own);
    Fragment sums = scan_sum(own);
    copy(sums, out.at(block * 4));
  });
  EXPECT_EQ(copies(scanned), 2);
  const lang::Kernel turned = kernel("turned", [] {
    Tensor x = input("x", {16, 16}, f32), out = output("out", {16, 16}, f32);
    grid(1, [&](Index) {
      Fragment own({16, 16}, f32), other({16, 16}, f32);
      copy(x.at(0), own);
      parallel(other, [&](Index i, Index j) { other(i, j) = own(j, i); });
      copy(other, out.at(0));
    });
  });
  EXPECT_EQ(copies(turned), 1);
}

// Of a loop that looks at neighbours, each element is read as often as there are places.
TEST(CopiesInLoops, NotWhereALoopReadsManyPlaces) {
  for (const int places : {1, 4, 5, 9}) {
    const lang::Kernel program = over_rows(f32, [&](Tensor& x, Tensor& out, Index& block) {
      Shared own({4, columns + 8}, f32);
      copy(x.at(block * 4), own);
      Fragment sum({4, columns}, f32, 0);
      parallel(sum, [&](Index i, Index j) {
        Var all = 0.0f;
        for (int place = 0; place < places; ++place) all += own(i, j + place);
        sum(i, j) = all;
      });
      copy(sum, out.at(block * 4));
    });
    EXPECT_EQ(copies(program), places > 4 ? 1 : 0) << places;
    expect_as_interpreted(program, tegula::Tensor::random_normal({11, 77}, f32, 1));
  }
}

// A loop that replaces the elements of two tiles, each of which has held others before.
TEST(CopiesInLoops, TwoTilesThatOneLoopChangesInPlace) {
  const lang::Kernel turned = kernel("turned_pairs", [] {
    Tensor x = inout("x", {8, columns}, f32), y = inout("y", {8, columns}, f32);
    grid(2, [&](Index block) {
      Fragment a({4, columns}, f32), b({4, columns}, f32);
      copy(x.at(block * 4), a);
      copy(y.at(block * 4), b);
      parallel(a, [&](Index i, Index j) {
        const Expr first = a(i, j), second = b(i, j);
        a(i, j) = first - second * 2;
        b(i, j) = second + first * 2;
      });
      copy(a, x.at(block * 4));
      copy(b, y.at(block * 4));
    });
  });
  const auto result = [&](tegula::Target target) {
    const auto x = tegula::Tensor::random_normal({8, columns}, f32, 1);
    const auto y = tegula::Tensor::random_normal({8, columns}, f32, 2);
    tegula::compile(turned, target)(x, y);
    return std::pair(x, y);
  };
  const auto [x, y] = result(tegula::Target::cpu());
  const auto [of_x, of_y] = result(tegula::Target::interpreter());
  EXPECT_EQ(tegula::first_difference(x, of_x, 1e-6, 1e-6), std::nullopt);
  EXPECT_EQ(tegula::first_difference(y, of_y, 1e-6, 1e-6), std::nullopt);
}

TEST(CopiesInLoops, NotInGridsWithProducts) {
  const lang::Kernel product = kernel("product", [] {
    Tensor x = input("x", {32, 32}, f32), out = output("out", {32, 32}, f32);
    grid(1, [&](Index) {
      Shared own({32, 32}, f32);
      Fragment sum({32, 32}, f32, 0);
      copy(x.at(0), own);
      gemm(own, own, sum);
      parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) * 2; });
      copy(sum, out.at(0));
    });
  });
  EXPECT_EQ(copies(product), 2);
}

}  // namespace copies_in_loops_test
}  // namespace tegula::codegen
