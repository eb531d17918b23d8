// Rows of tensors that are read where they are: without a question for each vector where they are whole, and
// right where they are not; and values that a row's loop keeps in registers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/cpu.hpp"
#include "codegen/cuda_program.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::codegen {
namespace whole_rows_test {

enum class Kept : std::uint8_t { in_register, read_later, rounded };

// Products of rows with a vector, from `first` on, and their sums.
lang::Kernel sums_in_place(DType type, Kept kept) {
  using namespace lang;
  return kernel("sums_in_place", [&] {
    Dim M("M"), K("K"), L("L");
    lang::Tensor a = input("a", {M, L}, type), x = input("x", {K}, f32), out = output("out", {M}, f32);
    Expr first = scalar("first", i32);
    grid(ceildiv(M, 8), [&](Index block) {
      Fragment sum({8}, f32, 0);
      serial(ceildiv(K, 64), [&](Index step) {
        Fragment by = load(x.at(step * 64), {64}), products({8, 64}, kept == Kept::rounded ? bf16 : f32);
        parallel(products, [&](Index i, Index j) {
          Expr e = a(block * 8 + i, first + step * 64 + j);
          products(i, j) = (type.is_floating() ? e : f32(e)) * by(j);
        });
        reduce_sum(products, sum);
        if (kept == Kept::read_later) {
          Fragment largest = reduce_max(products, 0);
          parallel(8, [&](Index i) { sum(i) += 0; });
          Fragment most = reduce_max(largest);
          when(most.scalar() > 1e6f, [&] { clear(sum); });
        }
      });
      copy(sum, out.at(block * 8));
    });
  });
}

void expect_as_interpreted(const lang::Kernel& program, const tegula::Tensor& a, std::int64_t columns,
                           int first) {
  const auto x = tegula::Tensor::random_normal({columns}, f32, 2);
  const auto result = [&](tegula::Target target) {
    const auto out = tegula::Tensor::full({a.size(0)}, f32, NAN);
    tegula::compile(program, target)(a, x, out, first);
    return out;
  };
  EXPECT_EQ(tegula::first_difference(result(tegula::Target::cpu()), result(tegula::Target::interpreter()),
                                     1e-4, 1e-4),
            std::nullopt)
      << describe(a.ref()) << " from " << first;
}

TEST(WholeRows, AreReadWhereTheyAre) {
  for (const DType type : {f32, bf16, f16, u8}) {
    const lang::Kernel program = sums_in_place(type, Kept::in_register);
    const auto a = type == u8 ? tegula::Tensor::random_integers({13, 300}, u8, 1, 0, 9)
                              : tegula::Tensor::random_normal({13, 300}, type, 1);
    for (const std::int64_t columns : {64, 128, 150, 256})
      for (const int first : {0, 3, 44, -5, 100}) expect_as_interpreted(program, a, columns, first);
    const auto turned = type == u8 ? tegula::Tensor::random_integers({300, 13}, u8, 1, 0, 9)
                                   : tegula::Tensor::random_normal({300, 13}, type, 1);
    expect_as_interpreted(program, turned.transpose(0, 1), 128, 0);
  }
}

// Of the last piece of a row a part exists, whose full vectors ask nothing. A row that is read from its
// beginning on is no piece.
TEST(WholeRows, VectorsOfAPieceThatExistAskNothing) {
  using namespace lang;
  const auto text = [](const lang::Kernel& program) { return print_cpu(Signature(program.ir())).text; };
  const char* limited = "inside_ = int32_t(max(int64_t(0), min(";
  EXPECT_NE(text(sums_in_place(bf16, Kept::in_register)).find(limited), std::string::npos);
  const lang::Kernel held = kernel("held", [] {
    Dim M("M"), K("K");
    lang::Tensor a = input("a", {M, K}, bf16), out = output("out", {M}, f32);
    grid(M, [&](Index row) { out(row) = reduce_sum(load(a.slice(row), {256}, f32)).scalar(); });
  });
  EXPECT_EQ(text(held).find("inside_"), std::string::npos);
}

TEST(WholeRows, ValuesStayInRegistersUnlessTheyAreReadLater) {
  const auto text = [](Kept kept) { return print_cpu(Signature(sums_in_place(f32, kept).ir())).text; };
  const auto stores = [&](Kept kept) { return text(kept).find(", kept_)") != std::string::npos; };
  for (const Kept kept : {Kept::in_register, Kept::read_later, Kept::rounded})
    EXPECT_NE(text(kept).find("const vf kept_"), std::string::npos);
  EXPECT_FALSE(stores(Kept::in_register));
  EXPECT_TRUE(stores(Kept::read_later));
  EXPECT_FALSE(stores(Kept::rounded));
  const auto a = tegula::Tensor::random_normal({13, 300}, f32, 1);
  for (const Kept kept : {Kept::read_later, Kept::rounded})
    expect_as_interpreted(sums_in_place(f32, kept), a, 150, 0);
}

// Groups of elements of one row of a tile come from rows of their own, or from places further on, not all of
// which exist: what holds for the first vector does not hold for the row.
TEST(WholeRows, AreNotThoseWhoseGroupsAreApart) {
  using namespace lang;
  const lang::Kernel program = kernel("groups", [] {
    Dim M("M"), N("N");
    lang::Tensor a = input("a", {M, N}, f32), rows = output("rows", {4, 128}, f32),
                 further = output("further", {4, 128}, f32);
    grid(1, [&](Index) {
      Shared tile({4, 128}, f32), other({4, 128}, f32);
      parallel(tile, [&](Index i, Index d) { tile(i, d) = a(i + d / 16, d); });
      parallel(other, [&](Index i, Index d) { other(i, d) = a(i, d + d / 32); });
      copy(tile, rows.at(0, 0));
      copy(other, further.at(0, 0));
    });
  });
  const auto a = tegula::Tensor::random_normal({16, 192}, f32, 1).slice(0, 0, 5).slice(1, 0, 129);
  for (const bool is_rows : {true, false}) {
    const auto result = [&](tegula::Target target) {
      const auto rows = tegula::Tensor::full({4, 128}, f32, NAN),
                 further = tegula::Tensor::full({4, 128}, f32, NAN);
      tegula::compile(program, target)(a, rows, further);
      return is_rows ? rows : further;
    };
    EXPECT_TRUE(tegula::equal(result(tegula::Target::cpu()), result(tegula::Target::interpreter())));
  }
}

// A block's rows, four after the other, each in steps: what the next four have at the same place is fetched.
TEST(WholeRows, FetchWhatTheNextRowsHave) {
  using namespace lang;
  const lang::Kernel program = kernel("rows_in_parts", [] {
    Dim M("M"), L("L"), K("K");
    lang::Tensor a = input("a", {M, L}, f32), x = input("x", {K}, f32), out = output("out", {M}, f32);
    Expr first = scalar("first", i32);
    grid(ceildiv(M, 16), [&](Index block) {
      Shared sums({16, 64}, f32);
      parallel(sums, [&](Index i, Index j) { sums(i, j) = 0.0f; });
      serial(4, [&](Index part) {
        serial(ceildiv(K, 64), [&](Index step) {
          parallel(64, [&](Index j) {
            for (int i = 0; i < 4; ++i) {
              Expr row = part * 4 + i;
              sums(row, j) += a(block * 16 + row, first + step * 64 + j) * x(step * 64 + j);
            }
          });
        });
      });
      Fragment sum = reduce_sum(sums);
      copy(sum, out.at(block * 16));
    });
  });
  const std::string text = print_cpu(Signature(program.ir())).text;
  EXPECT_NE(text.find("__builtin_prefetch((const char*)(a_ + long((bx0_ * 16 + (i0_ + 1) * 4)) * a_s0"),
            std::string::npos);
  const auto a = tegula::Tensor::random_normal({37, 300}, f32, 1);
  for (const std::int64_t columns : {64, 150, 256}) expect_as_interpreted(program, a, columns, 0);
}

// Sums of so many rows at once, each over all of a row.
lang::Kernel sums_at_once(int count) {
  using namespace lang;
  return kernel("sums_at_once", [&] {
    Dim M("M"), L("L"), K("K");
    lang::Tensor a = input("a", {M, L}, f32), x = input("x", {K}, f32), out = output("out", {M}, f32);
    Expr first = scalar("first", i32);
    grid(ceildiv(M, 2 * count), [&](Index block) {
      Shared sums({2 * count}, f32);
      serial(2, [&](Index part) {
        std::vector<Fragment> totals, products;
        for (int i = 0; i < count; ++i) totals.push_back(Fragment(std::initializer_list<int>{}, f32, 0));
        serial(ceildiv(K, 128), [&](Index step) {
          for (int i = 0; i < count; ++i) products.push_back(Fragment({128}, f32));
          parallel(128, [&](Index j) {
            for (int i = 0; i < count; ++i)
              products[i](j) =
                  a(block * (2 * count) + part * count + i, first + step * 128 + j) * x(step * 128 + j);
          });
          for (int i = 0; i < count; ++i) reduce_sum(products[i], totals[i]);
        });
        for (int i = 0; i < count; ++i)
          parallel(1, [&](Index) { sums(part * count + i) = totals[i].scalar(); });
      });
      copy(sums, out.at(block * (2 * count)));
    });
  });
}

// One sum would wait for itself, so that four parts of it are formed side by side; four rows have four sums.
// What asks for each vector is in a function of its own.
TEST(WholeRows, FourSumsAreSideBySideByThemselves) {
  for (const int count : {1, 4}) {
    const lang::Kernel program = sums_at_once(count);
    const std::string text = print_cpu(Signature(program.ir())).text;
    EXPECT_EQ(text.find("const auto step_") == std::string::npos, count == 4);
    EXPECT_NE(text.find("const auto parts_ = [=](vf& acc_"), std::string::npos);
    EXPECT_NE(text.find("() __attribute__((always_inline)) {"), std::string::npos) << "captured in registers";
    const auto a = tegula::Tensor::random_normal({19, 300}, f32, 1);
    for (const std::int64_t columns : {128, 150, 256})
      for (const int first : {0, 3, -5}) expect_as_interpreted(program, a, columns, first);
  }
}

// Rows of a meet the same vector one after the other, each in steps.
lang::Kernel rows_one_by_one() {
  using namespace lang;
  return kernel("rows_one_by_one", [] {
    Dim M("M"), K("K");
    lang::Tensor a = input("a", {M, K}, f32), x = input("x", {K}, f32), out = output("out", {M, 64}, f32);
    grid(ceildiv(M, 8), [&](Index block) {
      serial(8, [&](Index row) {
        Fragment sum({64}, f32, 0);
        serial(ceildiv(K, 64), [&](Index step) {
          parallel(sum, [&](Index j) { sum(j) += a(block * 8 + row, step * 64 + j) * x(step * 64 + j); });
        });
        copy(sum, out.slice(block * 8 + row));
      });
    });
  });
}

TEST(WholeRows, WhatIsReadAgainForEveryRowIsNotFetchedAhead) {
  const std::string text = print_cpu(Signature(rows_one_by_one().ir())).text;
  const auto fetched = [&](const char* tensor) {
    return text.find(fmt::format("__builtin_prefetch((const char*)({}", tensor)) != std::string::npos;
  };
  EXPECT_TRUE(fetched("a_"));
  EXPECT_FALSE(fetched("x_"));
}

// An element that has another name may change between two loads of it.
TEST(WholeRows, AreLoadedAgainWhereAnotherNameIsWritten) {
  const lang::Kernel program = lang::kernel("other_name", [] {
    using namespace lang;
    lang::Tensor x = input("x", {4, 80}, f32), y = inout("y", {4, 80}, f32),
                 out = output("out", {4, 80}, f32);
    may_alias(x, y);
    grid(1, [&](Index) {
      Fragment rows({4, 80}, f32);
      parallel(rows, [&](Index i, Index j) {
        const Expr before = x(i, j);
        y(i, j) = before + 1;
        out(i, j) = x(i, j) + before;
      });
    });
  });
  const auto result = [&](Target target) {
    const Tensor x = Tensor::random_normal({4, 80}, f32, 1), out = Tensor::zeros({4, 80}, f32);
    compile(program, target)(x, x, out);
    return out;
  };
  EXPECT_EQ(first_difference(result(Target::cpu()), result(Target::interpreter()), 0, 0), std::nullopt);
}

// Rows of one loop that several rows of the loop before it have written.
TEST(WholeRows, AreNotFinishedOneByOneWhereTheyLieAcross) {
  const lang::Kernel program = lang::kernel("across", [] {
    using namespace lang;
    lang::Tensor x = input("x", {4, 16}, f32), out = output("out", {4, 16}, f32);
    grid(1, [&](Index) {
      Fragment rows({4, 16}, f32), all({20, 16}, f32);
      Shared across({20, 16}, f32), back({4, 16}, f32);
      parallel(all, [&](Index i, Index j) { across(i, j) = 0; });
      parallel(rows, [&](Index i, Index j) { across(i + j, j) = x(i, j); });
      parallel(rows, [&](Index i, Index j) { back(i, j) = across(i + j, max(j - 1, 0)); });
      copy(back, out.at(0, 0));
    });
  });
  const Tensor x = Tensor::random_normal({4, 16}, f32, 1);
  const auto result = [&](Target target) {
    const Tensor out = Tensor::zeros({4, 16}, f32);
    compile(program, target)(x, out);
    return out;
  };
  EXPECT_EQ(first_difference(result(Target::cpu()), result(Target::interpreter()), 0, 0), std::nullopt);
}

// On a GPU, those of a workspace: strides that are constants, and pieces that ask for their own row.
TEST(WholeRows, OfWorkspacesAreReadByPieces) {
  const auto text = [](int columns) {
    const lang::Kernel program = lang::kernel("rows", [&] {
      using namespace lang;
      Dim rows("rows");
      lang::Tensor x = input("X", {rows, columns}, f32), y = output("Y", {rows, columns}, f32),
                   own = workspace("own", {rows, columns}, f32);
      grid(ceildiv(rows, 4), [&](Index i) { copy(load(x.at(i * 4, 0), {4, columns}), own.at(i * 4, 0)); });
      grid(ceildiv(rows, 4), [&](Index i) { copy(load(own.at(i * 4, 0), {4, columns}), y.at(i * 4, 0)); });
    });
    return print_cuda(Signature(program.ir()), {90}).text;
  };
  const std::string whole = text(128), odd = text(129);
  EXPECT_NE(whole.find("load_pack_if<4>(own_"), std::string::npos) << whole;
  EXPECT_NE(whole.find("* 128"), std::string::npos) << whole;
  EXPECT_EQ(whole.find("is_aligned<16>(own_"), std::string::npos) << whole;
  EXPECT_EQ(odd.find("load_pack_if<4>(own_"), std::string::npos) << odd;
  EXPECT_NE(odd.find("own__s0"), std::string::npos) << odd;
}

}  // namespace whole_rows_test
}  // namespace tegula::codegen
