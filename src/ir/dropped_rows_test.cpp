// Whether what a limit cuts off reaches a result.
#include "ir/dropped_rows.hpp"

#include <gtest/gtest.h>

#include "ir/visit.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace {

using namespace lang;

// Rows of groups, of which each block has one, times a matrix.
struct Groups {
  Dim M{"M"}, N{"N"}, G{"G"};
  lang::Tensor A = input("A", {M, 64}, bf16), B = input("B", {N, 64}, bf16),
               first = input("first", {G + 1}, i32);
  lang::Tensor counts = inout("counts", {G}, i32), C = output("C", {M, N}, f32), R = output("R", {M}, f32);

  Range rows(const Expr& g) const { return range(first(g), first(g + 1)); }
};

struct CutCase {
  const char* name;
  bool drops;  // what is cut off of the copy of A
  void (*body)(const Groups&, Index g);
};

void PrintTo(const CutCase& c, std::ostream* out) { *out << c.name; }

// acc += rows of A · Bᵀ, in steps.
void multiply(const Groups& t, const lang::Tensor& a, const Expr& row, Fragment& acc) {
  pipelined(2, [&](Index k) {
    Shared as({64, 32}, bf16), bs({64, 32}, bf16);
    copy(a.at(row, k * 32), as);
    copy(t.B.at(0, k * 32), bs);
    gemm(as, bs.T(), acc);
  });
}

const CutCase cut_cases[] = {
    {"stored_by_the_same_slice", true,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A.slice(rows), 64, acc);
       copy(acc, t.C.slice(rows).at(64, 0));
     }},
    {"limits_that_are_read_again", true,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       serial(4, [&](Index i) {
         Fragment partial({64, 64}, f32, 0);
         multiply(t, t.A.slice(t.rows(g)), i * 64, partial);
         parallel(partial, [&](Index r, Index c) { t.C.slice(t.rows(g))(i * 64 + r, c) = partial(r, c); });
       });
     }},
    {"rows_counted_from_elsewhere", true,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       Expr count = t.counts(g), begin = t.first(g);
       multiply(t, t.A.slice(range(begin, begin + count)), 0, acc);
       copy(acc, t.C.slice(range(g * 64, g * 64 + count)).at(0, 0));
     }},
    {"scaled_and_summed_by_row", true,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A.slice(rows), 0, acc);
       Fragment sum = reduce_sum(acc, 1);
       parallel(acc, [&](Index i, Index j) { acc(i, j) = max(acc(i, j), 0.f) / sum(i); });
       copy(acc, t.C.slice(rows).at(0, 0));
       copy(sum, t.R.slice(rows).at(0));
     }},
    {"added_to_the_tensor", true,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A.slice(rows), 0, acc);
       accumulate(t.C.slice(rows).at(0, 0), acc);
     }},
    {"columns_of_the_product", true,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Shared as({64, 64}, bf16), bs({64, 64}, bf16);
       copy(t.A.slice(rows).at(0, 0), as);
       copy(t.B.at(0, 0), bs);
       Fragment acc({64, 64}, f32, 0);
       gemm(bs, as.T(), acc);
       copy(acc.T(), t.C.slice(rows).at(0, 0));
     }},
    {"stored_beyond_the_slice", false,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       Expr begin = t.first(g);
       multiply(t, t.A.slice(t.rows(g)), 0, acc);
       copy(acc, t.C.at(begin, 0));
     }},
    {"stored_with_a_later_end", false,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       Expr begin = t.first(g), end = t.first(g + 1);
       multiply(t, t.A.slice(range(begin, end)), 0, acc);
       copy(acc, t.C.slice(range(begin, end + 1)).at(0, 0));
     }},
    {"stored_with_an_earlier_end", true,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       Expr begin = t.first(g), end = t.first(g + 1);
       multiply(t, t.A.slice(range(begin, end)), 0, acc);
       copy(acc, t.C.slice(range(begin, end - 1)).at(0, 0));
     }},
    {"summed_over_the_rows", false,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A.slice(rows), 0, acc);
       Fragment sum = reduce_sum(acc, 0);
       parallel(64, [&](Index j) { t.C(g, j) = sum(j); });
       copy(acc, t.C.slice(rows).at(0, 0));
     }},
    {"inner_dimension_of_a_product", false,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Shared as({64, 64}, bf16), bs({64, 64}, bf16);
       copy(t.A.slice(rows).at(0, 0), as);
       copy(t.B.at(0, 0), bs);
       Fragment acc({64, 64}, f32, 0);
       gemm(bs, as, acc);
       copy(acc, t.C.slice(rows).at(0, 0));
     }},
    {"another_row_of_the_tile", false,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Shared as({64, 64}, bf16);
       copy(t.A.slice(rows).at(0, 0), as);
       parallel(64, 64, [&](Index i, Index j) { t.C.slice(rows)(i, j) = as(63 - i, j); });
     }},
    {"decides_about_all", false,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Shared as({64, 64}, bf16);
       copy(t.A.slice(rows).at(0, 0), as);
       when(as(5, 0) > 0.f, [&] { parallel(64, [&](Index j) { t.C(g, j) = 1.f; }); });
     }},
    {"limits_of_another_step", false,
     [](const Groups& t, Index) {
       Fragment acc({64, 64}, f32, 0);
       serial(t.G, [&](Index g) {
         multiply(t, t.A.slice(range(0, t.counts(g))), 0, acc);
         copy(acc, t.C.slice(range(0, t.counts(g))).at(0, 0));
       });
     }},
    {"a_sum_for_each_step", true,
     [](const Groups& t, Index) {
       serial(t.G, [&](Index g) {
         Fragment acc({64, 64}, f32, 0);
         multiply(t, t.A.slice(range(0, t.counts(g))), 0, acc);
         copy(acc, t.C.slice(range(0, t.counts(g))).at(0, 0));
       });
     }},
    {"asserted", false,
     [](const Groups& t, Index g) {
       const Range rows = t.rows(g);
       Shared as({64, 64}, bf16);
       copy(t.A.slice(rows).at(0, 0), as);
       parallel(64, 64, [&](Index i, Index j) {
         assert_that(as(i, j) == as(i, j), "not a number");
         t.C.slice(rows)(i, j) = as(i, j);
       });
     }},
};

class CutRows : public ::testing::TestWithParam<CutCase> {};

void expect_drops(const CutCase& c, bool drops(const ir::Body&, const ir::Values&, const ir::Copy&)) {
  const auto written = kernel("cut_rows", [&] {
                         Groups t;
                         grid(t.G, [&](Index g) { c.body(t, g); });
                       }).ir();
  const ir::Body& body = written->grids.front().body;
  const ir::Values values(body);
  int copies = 0;
  ir::for_each_stmt(body, [&](const ir::Stmt& s) {
    const auto* n = ir::as<ir::Copy>(s);
    if (!n || n->from.is_tile() || n->from.buffer->name != "A") return;
    ++copies;
    EXPECT_EQ(drops(body, values, *n), c.drops);
  });
  EXPECT_EQ(copies, 1);
}

TEST_P(CutRows, AreDroppedOrNot) { expect_drops(GetParam(), ir::drops_what_is_cut); }

INSTANTIATE_TEST_SUITE_P(Table, CutRows, ::testing::ValuesIn(cut_cases),
                         [](auto& info) { return std::string(info.param.name); });

// Rows from row `row` on, times a matrix, of which the last ones are outside A.
const CutCase outside_cases[] = {
    {"stored_in_as_many_rows", true,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A, g * 64, acc);
       copy(acc, t.C.at(g * 64, 0));
     }},
    {"stored_one_by_one", true,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A, g * 64, acc);
       parallel(acc, [&](Index r, Index c) { t.C(g * 64 + r, c) = max(acc(r, c), 0.f); });
     }},
    {"columns_of_the_product", true,
     [](const Groups& t, Index g) {
       Shared as({64, 64}, bf16), bs({64, 64}, bf16);
       copy(t.A.at(g * 64, 0), as);
       copy(t.B.at(0, 0), bs);
       Fragment acc({64, 64}, f32, 0);
       gemm(bs, as.T(), acc);
       copy(acc.T(), t.C.at(g * 64, 0));
     }},
    {"parts_of_a_reshaped_tile", true,
     [](const Groups& t, Index g) {
       Shared as({64, 64}, bf16), bs({64, 32}, bf16);
       copy(t.A.at(g * 64, 0), as);
       copy(t.B.at(0, 0), bs);
       Fragment acc({64, 64}, f32, 0);
       unrolled(2, [&](Index part) { gemm(as.reshape({64, 2, 32}).slice(all, part, all), bs.T(), acc); });
       copy(acc, t.C.at(g * 64, 0));
     }},
    {"rows_of_a_reshaped_tile", false,
     [](const Groups& t, Index g) {
       Shared as({64, 64}, bf16), bs({64, 64}, bf16);
       copy(t.A.at(g * 64, 0), as);
       copy(t.B.at(0, 0), bs);
       Fragment acc({32, 64}, f32, 0);
       unrolled(2, [&](Index part) { gemm(as.reshape({2, 32, 64}).slice(part, all, all), bs.T(), acc); });
       copy(acc, t.C.at(g * 64, 0));
     }},
    {"stored_further_up", false,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A, g * 64 + 1, acc);
       copy(acc, t.C.at(g * 64, 0));
     }},
    {"stored_in_a_tensor_of_other_rows", false,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A, g * 64, acc);
       parallel(64, [&](Index i) { t.counts(g * 64 + i) = i32(acc(i, 0)); });
     }},
    {"summed_over_the_rows", false,
     [](const Groups& t, Index g) {
       Fragment acc({64, 64}, f32, 0);
       multiply(t, t.A, g * 64, acc);
       Fragment sum = reduce_sum(acc, 0);
       parallel(64, [&](Index j) { t.C(g, j) = sum(j); });
     }},
    {"inner_dimension_of_a_product", false,
     [](const Groups& t, Index g) {
       Shared as({64, 64}, bf16), bs({64, 64}, bf16);
       copy(t.A.at(g * 64, 0), as);
       copy(t.B.at(0, 0), bs);
       Fragment acc({64, 64}, f32, 0);
       gemm(bs, as, acc);
       copy(acc, t.C.at(g * 64, 0));
     }},
    {"rows_of_another_step", false,
     [](const Groups& t, Index) {
       Fragment acc({64, 64}, f32, 0);
       serial(t.G, [&](Index g) {
         multiply(t, t.A, g * 64, acc);
         copy(acc, t.C.at(g * 64, 0));
       });
     }},
};

class OutsideRows : public ::testing::TestWithParam<CutCase> {};

TEST_P(OutsideRows, AreDroppedOrNot) { expect_drops(GetParam(), ir::drops_rows_outside); }

INSTANTIATE_TEST_SUITE_P(Table, OutsideRows, ::testing::ValuesIn(outside_cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula
