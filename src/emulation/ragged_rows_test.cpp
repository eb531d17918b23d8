// Tiles whose rows end inside of a tensor: what follows the end comes along, and reaches nothing.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"

namespace tegula::emulation {
namespace ragged_rows_test {

constexpr int depth = 128, columns = 96, rows = 200;
const std::vector<int> groups{3, 67, 67, 196};  // what is between, and outside, is NaN

// What a block has: rows of its group, in tiles of 64.
struct Group {
  const lang::Tensor &A, &B, &scale, &out;
  lang::Range rows;
  lang::Expr row;  // of the tile in the group
};

struct Ragged {
  const char* name;
  void (*body)(const Group&);
  const char* has = nullptr;  // in the text
};

void product(const Group& g, lang::Fragment& acc) {
  using namespace lang;
  pipelined(depth / 64, {.stages = 2}, [&](Index k) {
    Shared a({64, 64}, bf16), b({columns, 64}, bf16);
    copy(g.A.slice(g.rows).at(g.row, k * 64), a);
    copy(g.B.at(0, k * 64), b);
    gemm(a, b.T(), acc);
  });
}

const Ragged all_ragged[] = {
    {"product",
     [](const Group& g) {
       using namespace lang;
       Fragment acc({64, columns}, f32, 0);
       product(g, acc);
       copy(acc, g.out.slice(g.rows).at(g.row, 0));
     }},
    {"product_by_element",
     [](const Group& g) {
       using namespace lang;
       Fragment acc({64, columns}, f32, 0);
       product(g, acc);
       lang::Tensor own = g.out.slice(g.rows);
       parallel(acc, [&](Index i, Index j) { own(g.row + i, j) = max(acc(i, j), 0.f); });
     }},
    {"rows_of_the_right_operand",
     [](const Group& g) {
       using namespace lang;
       Fragment acc({64, 64}, f32, 0);
       pipelined(depth / 64, {.stages = 2}, [&](Index k) {
         Shared a({64, 64}, bf16), b({64, 64}, bf16);
         copy(g.A.slice(g.rows).at(g.row, k * 64), a);
         copy(g.B.at(0, k * 64), b);
         gemm(b, a.T(), acc);
       });
       copy(acc.T(), g.out.slice(g.rows).at(g.row, 0));
     }},
    {"divided_by_sums_of_rows",
     [](const Group& g) {
       using namespace lang;
       Fragment acc({64, columns}, f32, 0);
       product(g, acc);
       parallel(acc, [&](Index i, Index j) { acc(i, j) = exp2(min(acc(i, j), 4.f)); });
       Fragment sum = reduce_sum(acc, 1);
       parallel(acc, [&](Index i, Index j) { acc(i, j) /= sum(i); });
       copy(acc, g.out.slice(g.rows).at(g.row, 0));
     }},
    {"scales_that_begin_anywhere",
     [](const Group& g) {
       using namespace lang;
       Fragment acc({64, columns}, f32, 0);
       pipelined(depth / 64, {.stages = 2}, [&](Index k) {
         Shared a({64, 64}, bf16), b({columns, 64}, bf16), s({64}, f32);
         copy(g.A.slice(g.rows).at(g.row, k * 64), a);
         copy(g.B.at(0, k * 64), b);
         copy(g.scale.slice(k, g.rows).at(g.row), s);
         Fragment partial({64, columns}, f32, 0);
         gemm(a, b.T(), partial);
         parallel(acc, [&](Index i, Index j) { acc(i, j) += partial(i, j) * s(i); });
       });
       copy(acc, g.out.slice(g.rows).at(g.row, 0));
     },
     "copy_element_async"},
};

void PrintTo(const Ragged& c, std::ostream* out) { *out << c.name; }

lang::Kernel ragged(const Ragged& c) {
  using namespace lang;
  return kernel("ragged", [&] {
    Dim M("M");
    lang::Tensor A = input("A", {M, depth}, bf16), B = input("B", {columns, depth}, bf16);
    lang::Tensor scale = input("scale", {depth / 64, M}, f32), first = input("first", {4}, i32);
    lang::Tensor out = output("out", {M, columns}, f32);
    grid(3, 3, [&](Index y, Index g) {
      const Range rows = range(first(g), first(g + 1));
      c.body({A, B, scale, out, rows, y * 64});
    });
  });
}

class RaggedRows : public ::testing::TestWithParam<Ragged> {};

TEST_P(RaggedRows, ComeByTheCopyEngine) {
  const lang::Kernel program = ragged(GetParam());
  const std::string text = text_with_roles(program);
  EXPECT_EQ(text.find("copy_vector"), std::string::npos);
  EXPECT_EQ(text.find("tg::complete"), std::string::npos);
  if (GetParam().has) { EXPECT_NE(text.find(GetParam().has), std::string::npos); }
}

TEST_P(RaggedRows, AreAsInterpreted) {
  Tensor a = Tensor::random_normal({rows, depth}, bf16, 1, 0, 1),
         scale = Tensor::full({depth / 64, rows}, f32, NAN);
  const Tensor nothing = Tensor::full({depth}, bf16, NAN);
  for (int i = 0; i < rows; ++i)
    if (i < groups.front() || i >= groups.back()) copy_elements(nothing, a.select(0, i));
  copy_elements(Tensor::random_uniform({depth / 64, groups.back() - groups.front()}, f32, 2, .5, 1.5),
                scale.slice(1, groups.front(), groups.back()));
  const Tensor b = Tensor::random_normal({columns, depth}, bf16, 3, 0, 1);
  const lang::Kernel program = ragged(GetParam());
  const auto results = [&](Target target) {
    const Tensor out = Tensor::full({rows, columns}, f32, 77);
    const std::vector<Argument> values{a, b, scale, Tensor::from(groups), out};
    compile(program, target).call_in_order(values);
    return out.values<double>();
  };
  const auto wanted = results(Target::interpreter()), got = results(Target::emulated_sm90());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-3) << "element " << i;
}

INSTANTIATE_TEST_SUITE_P(Table, RaggedRows, ::testing::ValuesIn(all_ragged),
                         [](auto& info) { return std::string(info.param.name); });

// Gathers of columns that are found when the loop runs, of rows whose number of columns fills no piece, and
// of a reshaped tensor.
struct Columns {
  const char* name;
  int columns;
  bool reshaped;
};
class GatheredColumns : public ::testing::TestWithParam<Columns> {};

TEST_P(GatheredColumns, AreAsInterpreted) {
  const Columns& c = GetParam();
  const lang::Kernel program = [&] {
    using namespace lang;
    return kernel("columns", [&] {
      Dim N("N");
      lang::Tensor X = c.reshaped ? input("X", {N, 2, 64}, bf16) : input("X", {N, Dim("K")}, bf16);
      lang::Tensor list = input("list", {64}, i32), B = input("B", {64, 128}, bf16),
                   out = output("out", {64, 64}, f32);
      lang::Tensor rows = c.reshaped ? X.reshape({N, 128}) : X;
      grid(1, [&](Index) {
        Fragment acc({64, 64}, f32, 0);
        pipelined(2, {.stages = 2}, [&](Index k) {
          Shared a({64, 64}, bf16), b({64, 64}, bf16);
          gather(rows.slice(all, range(k * 64, (k + 1) * 64)), list, a);
          copy(B.at(0, k * 64), b);
          gemm(a, b.T(), acc);
        });
        copy(acc, out.at(0, 0));
      });
    });
  }();
  // Rows of a reshaped tensor end with a piece.
  const char* copy = c.reshaped ? "tg::copy_async" : "copy_bytes_async";
  EXPECT_NE(text_with_roles(program).find(copy), std::string::npos);
  const Shape shape = c.reshaped ? Shape{40, 2, 64} : Shape{40, c.columns};
  // Rows are at multiples of 16 bytes.
  const std::int64_t wide = (c.columns + 7) / 8 * 8;
  const Tensor room = Tensor::random_normal({40, wide}, bf16, 1, 0, 1);
  const Tensor x = c.reshaped ? room.reshape(shape) : room.slice(1, 0, c.columns);
  expect_as_interpreted(
      program,
      {x, Tensor::random_integers({64}, i32, 2, -3, 42), Tensor::random_normal({64, 128}, bf16, 3, 0, 1)},
      {64, 64}, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Table, GatheredColumns,
                         ::testing::Values(Columns{"whole", 128, false},
                                           Columns{"ends_in_a_piece", 100, false},
                                           Columns{"ends_in_the_first_step", 61, false},
                                           Columns{"reshaped", 128, true}),
                         [](auto& info) { return std::string(info.param.name); });

// Rows that lie one behind the other and have no whole pieces: copied by 8 or 4 bytes, or by way of
// registers, in which case they may begin at any element.
struct Units {
  int columns, first;
  const char* copy;
};
class RowsOfUnits : public ::testing::TestWithParam<Units> {};

TEST_P(RowsOfUnits, AreAsInterpreted) {
  const Units& c = GetParam();
  const lang::Kernel program = [&] {
    using namespace lang;
    return kernel("units", [&] {
      lang::Tensor X = input("X", {Dim("N"), c.columns}, bf16), list = input("list", {Dim("L")}, i32),
                   B = input("B", {64, 128}, bf16), out = output("out", {64, 64}, f32);
      grid(1, [&](Index) {
        Fragment acc({64, 64}, f32, 0);
        pipelined(3, {.stages = 2}, [&](Index k) {
          Shared a({64, 128}, bf16), b({64, 128}, bf16);
          parallel(a, [&](Index i, Index j) { a(i, j) = X(list(k * 64 + i), j); });
          copy(B, b);
          gemm(a, b.T(), acc);
        });
        copy(acc, out.at(0, 0));
      });
    });
  }();
  EXPECT_NE(text_with_roles(program).find(c.copy), std::string::npos);
  const Tensor room = Tensor::random_normal({40 * c.columns + c.first}, bf16, 1, 0, 1);
  expect_as_interpreted(
      program,
      {room.slice(0, c.first, c.first + 40 * c.columns).reshape({40, c.columns}),
       Tensor::random_integers({192}, i32, 2, -3, 42), Tensor::random_normal({64, 128}, bf16, 3, 0, 1)},
      {64, 64}, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Table, RowsOfUnits,
                         ::testing::Values(Units{100, 0, "copy_units_async<8>"},
                                           Units{60, 4, "copy_units_async<8>"},
                                           Units{98, 2, "copy_units_async<4>"}, Units{97, 1, "load_piece"},
                                           Units{57, 0, "load_piece"}, Units{100, 1, "copy_units_async<8>"}),
                         [](auto& info) {
                           return std::to_string(info.param.columns) + "_from_" +
                                  std::to_string(info.param.first);
                         });

// Bytes that other warps widen.
class BytesOfUnits : public ::testing::TestWithParam<Units> {};

TEST_P(BytesOfUnits, AreAsInterpreted) {
  const Units& c = GetParam();
  const lang::Kernel program = [&] {
    using namespace lang;
    return kernel("bytes", [&] {
      lang::Tensor X = input("X", {Dim("N"), c.columns}, e4m3), list = input("list", {Dim("L")}, i32),
                   B = input("B", {64, 128}, bf16), out = output("out", {64, 64}, f32);
      grid(1, [&](Index) {
        Fragment acc({64, 64}, f32, 0);
        Shared b({64, 128}, bf16);
        copy(B, b);
        pipelined(3, {.stages = 2}, [&](Index k) {
          Shared a({64, 128}, bf16);
          parallel(a, [&](Index i, Index j) { a(i, j) = X(list(k * 64 + i), j); });
          gemm(a, b.T(), acc);
        });
        copy(acc, out.at(0, 0));
      });
    });
  }();
  EXPECT_NE(text_with_roles(program).find(c.copy), std::string::npos);
  expect_as_interpreted(
      program,
      {Tensor::random_normal({40, c.columns}, f32, 1, 0, 1).to(e4m3),
       Tensor::random_integers({192}, i32, 2, -3, 42), Tensor::random_normal({64, 128}, bf16, 3, 0, 1)},
      {64, 64}, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Table, BytesOfUnits,
                         ::testing::Values(Units{112, 0, "copy_async("},
                                           Units{72, 0, "copy_units_async<8>"},
                                           Units{100, 0, "copy_units_async<4>"}, Units{73, 0, "load_piece"}),
                         [](auto& info) { return std::to_string(info.param.columns); });

}  // namespace ragged_rows_test
}  // namespace tegula::emulation
