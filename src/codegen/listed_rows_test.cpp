// Rows of tensors that a list names, on a CPU: they are read where they are, once their names are there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/cpu.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::codegen {
namespace listed_rows_test {

// Rows of a tensor that a list names.
lang::Kernel listed_rows(DType type, int columns) {
  using namespace lang;
  return kernel("listed_rows", [&] {
    Dim M("M"), N("N"), L("L");
    lang::Tensor a = input("a", {N, L}, type), rows = input("rows", {M}, i32),
                 out = output("out", {M, columns}, f32);
    Expr first = scalar("first", i32);
    grid(ceildiv(M, 8), [&](Index block) {
      Shared tile({8, columns}, f32);
      parallel(tile, [&](Index i, Index j) { tile(i, j) = a(rows(block * 8 + i), first + j); });
      copy(tile, out.at(block * 8));
    });
  });
}

TEST(ListedRows, AreReadWhereTheyAre) {
  const auto rows = tegula::Tensor::random_integers({21}, i32, 3, -2, 16);  // of which 13 exist
  for (const DType type : {f32, bf16, f16, e4m3})
    for (const int columns : {64, 100, 128}) {
      const lang::Kernel program = listed_rows(type, columns);
      const auto a = tegula::Tensor::random_normal({13, 160}, type, 1),
                 turned = tegula::Tensor::random_normal({160, 13}, type, 1).transpose(0, 1);
      const auto result = [&](tegula::Target target, const tegula::Tensor& from, int first) {
        const auto out = tegula::Tensor::full({21, columns}, f32, NAN);
        tegula::compile(program, target)(from, rows, out, first);
        return out;
      };
      for (const tegula::Tensor& from : {a, turned})
        for (const int first : {0, 5, 100})
          EXPECT_EQ(tegula::first_difference(result(tegula::Target::cpu(), from, first),
                                             result(tegula::Target::interpreter(), from, first), 0, 0),
                    std::nullopt)
              << describe(from.ref()) << " from " << first;
    }
  const std::string text = print_cpu(Signature(listed_rows(bf16, 128).ir())).text;
  EXPECT_NE(text.find("const vf t1_ = load(a_ + "), std::string::npos) << text;
}

TEST(ListedRows, ThatAreGatheredAreFetchedTogether) {
  using namespace lang;
  const lang::Kernel program = kernel("gathered_rows", [] {
    Dim N("N"), M("M");
    lang::Tensor a = input("a", {N, 96}, bf16), list = input("list", {M}, i32),
                 out = output("out", {M, 96}, f32);
    grid(ceildiv(M, 8), [&](Index block) {
      Shared rows({8, 96}, f32);
      gather(
          a, [&](Index i) -> Expr { return list(block * 8 + i); }, rows);
      copy(rows, out.at(block * 8));
    });
  });
  const auto text = print_cpu(Signature(program.ir())).text;
  EXPECT_NE(text.find("< 192; at_ += 64) __builtin_prefetch(ahead_ + at_);"), std::string::npos) << text;
}

// Rows that a list names, and a factor for each 64 elements of them.
TEST(ListedRows, NamesAndFactorsAreReadInFrontOfTheirElements) {
  using namespace lang;
  const lang::Kernel program = kernel("listed", [] {
    Dim N("N"), L("L");
    lang::Tensor a = input("a", {N, 128}, e4m3), factors = input("factors", {N, 2}, f32),
                 list = input("list", {L}, i32), out = output("out", {L, 128}, f32);
    grid(ceildiv(L, 8), [&](Index block) {
      Shared tile({8, 128}, f32);
      parallel(tile, [&](Index i, Index d) {
        Expr row = list(block * 8 + i);
        tile(i, d) = a(row, d) * factors(row, d / 64);
      });
      copy(tile, out.at(block * 8));
    });
  });
  const std::string text = print_cpu(Signature(program.ir())).text;
  EXPECT_EQ(text.find("load_lanes"), std::string::npos);
  const std::size_t name = text.find("load1(list_"), loop = text.find("+= W");
  ASSERT_NE(name, std::string::npos);
  EXPECT_LT(name, loop);
  const auto a = tegula::Tensor::random_normal({9, 128}, e4m3, 1),
             factors = tegula::Tensor::random_normal({9, 2}, f32, 2);
  const auto list = tegula::Tensor::random_integers({21}, i32, 3, -2, 11);
  const auto result = [&](tegula::Target target) {
    const auto out = tegula::Tensor::full({21, 128}, f32, NAN);
    tegula::compile(program, target)(a, factors, list, out);
    return out;
  };
  EXPECT_TRUE(tegula::equal(result(tegula::Target::cpu()), result(tegula::Target::interpreter())));
}

// The place of a row is known only once its entry of the list is there.
TEST(ListedRows, AreNotAskedAboutBeforeTheirNamesAreThere) {
  using namespace lang;
  const lang::Kernel program = kernel("rows_of_a_list", [] {
    Dim N("N"), M("M");
    lang::Tensor a = input("a", {N, 64}, f32), list = input("list", {M}, i32), out = output("out", {M}, f32);
    grid(ceildiv(M, 8), [&](Index block) {
      Fragment rows({8, 64}, f32), sum({8}, f32, 0);
      parallel(rows, [&](Index i, Index j) { rows(i, j) = a.slice(list(block * 8 + i))(j); });
      reduce_sum(rows, sum);
      copy(sum, out.at(block * 8));
    });
  });
  const auto a = tegula::Tensor::random_normal({13, 64}, f32, 1);
  const auto list = tegula::Tensor::random_integers({16}, i32, 2, 0, 13);
  const auto result = [&](tegula::Target target) {
    const auto out = tegula::Tensor::full({16}, f32, NAN);
    tegula::compile(program, target)(a, list, out);
    return out;
  };
  EXPECT_EQ(tegula::first_difference(result(tegula::Target::cpu()), result(tegula::Target::interpreter()),
                                     1e-4, 1e-4),
            std::nullopt);
}

}  // namespace listed_rows_test
}  // namespace tegula::codegen
