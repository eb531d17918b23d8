#include <gtest/gtest.h>

#include <sstream>

#include "ir/print.hpp"
#include "ir/simplify.hpp"
#include "ir/verify.hpp"
#include "tegula/lang.hpp"

namespace tegula::lang {
namespace {

// The body of the grid without places of the program.
std::string simplified(const std::function<void()>& program) {
  const ir::Kernel result = ir::simplify(*kernel("k", program).ir());
  ir::verify(result);
  std::istringstream lines(ir::print(result.grids[0].body));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find("//"), line.size()));
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

TEST(SimplifyKernel, DecidesBranchesFromRangesOfIndices) {
  EXPECT_EQ(simplified([] {
              Tensor C = output("C", {64}, i32);
              grid(4, [&](Index b) {
                when(b < 4, [&] { C(b) = 1; }).otherwise([&] { C(b) = 2; });
                when(b >= 4, [&] { C(b) = 3; });
                when(b < 2, [&] { when(b < 3, [&] { C(b) = 4; }); }).otherwise([&] {
                  when(b < 2, [&] { C(b) = 5; });
                });
              });
            }),
            "C[bx0] = 1\nwhen bx0 < 2 {\n  C[bx0] = 4\n}\n");
}

TEST(SimplifyKernel, DropsWhatHasNoEffect) {
  EXPECT_EQ(simplified([] {
              Dim N("N");
              Tensor A = input("A", {N}, i32), C = output("C", {N}, i32);
              grid(N, [&](Index b) {
                Expr x = A(b), y = A(x);
                (void)y;
                serial(N - N, [&](Index i) { C(i) = 1; });
                serial(N, [&](Index i) {
                  Expr z = A(i);
                  (void)z;
                });
                C(b) = 7;
              });
            }),
            "C[bx0] = 7\n");
}

// What fills them goes, whatever it is, and what only that read; a tile of the pipeline is loaded all the same.
TEST(SimplifyKernel, DropsFragmentsThatNothingReads) {
  EXPECT_EQ(simplified([] {
              Tensor A = input("A", {64, 64}, f32), C = output("C", {64}, f32);
              grid(1, [&](Index) {
                Shared loaded({64, 64}, f32);
                Fragment copied({64, 64}, f32), square({64, 64}, f32), sums({64}, f32), result({64}, f32);
                copy(A, loaded);
                copy(A, copied);
                clear(square);
                parallel(64, 64, [&](Index i, Index j) { square(i, j) = copied(i, j) * copied(i, j); });
                reduce_sum(square, sums);
                clear(result);
                copy(result, C);
              });
            }),
            "shared s0: f32[64, 64]\nfragment f3: f32[64]\ncopy(A, s0)\nfill(f3, 0.0)\ncopy(f3, C)\n");
}

TEST(SimplifyKernel, ConditionsHoldAfterTheBlockGoesOn) {
  EXPECT_EQ(simplified([] {
              Dim N("N");
              Tensor C = output("C", {N}, i32);
              grid(ceildiv(N, 64), [&](Index b) {
                parallel(64,
                         [&](Index i) { when(b * 64 + i >= 0, [&] { C(b * 64 + i) = (b * 64 + i) % 64; }); });
                exit_if(b > 3);
                when(b < 4, [&] { C(b) = 1; });
                exit_if(b >= 0);
                C(b) = 2;
              });
            }),
            "parallel p0 in 64 {\n  C[bx0 * 64 + p0] = p0\n}\nexit_if(bx0 > 3)\nC[bx0] = 1\nexit_if(true)\n");
}

TEST(SimplifyKernel, LimitsThatTheTensorSetsAreLeftOut) {
  EXPECT_EQ(simplified([] {
              Dim N("N");
              Tensor A = input("A", {N, 8}, f32);
              Tensor C = output("C", {N, 8}, f32);
              grid(ceildiv(N, 8), [&](Index b) {
                Fragment t({8, 8}, f32);
                copy(A.slice(range(0, N)).at(b * 8), t);
                copy(t, C.slice(range(2, N)).at(b * 8));
              });
            }),
            "fragment f0: f32[8, 8]\ncopy(A[bx0 * 8 : bx0 * 8 + 8, :], f0)\n"
            "copy(f0, C[2 + bx0 * 8 : 2 + bx0 * 8 + 8 in 2 : N, :])\n");
}

}  // namespace
}  // namespace tegula::lang
