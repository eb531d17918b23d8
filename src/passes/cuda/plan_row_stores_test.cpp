// Which sums threads store by rows of 16-byte pieces, and what a loop finds once for a row.
#include "passes/cuda/plan_row_stores.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace plan_row_stores_test {

using namespace lang;

struct RowCase {
  const char* name;
  // What is found for a row, what each element is, and how it is written; "" where the loop does not write rows.
  const char* rows;
  const char* slow;  // part of the reason why pieces are not written; "" where they are; null: nothing is expected
  int n;
  DType type;
  void (*write)(const Tensor& out, const Tensor& list, const Fragment& sum);
  int threads = 128;
  int columns = 0;  // of the tensor; 0: as many as the sum has
};

void PrintTo(const RowCase& c, std::ostream* out) { *out << c.name; }

std::string words(const std::optional<RowLoop>& rows) {
  if (!rows) return "";
  std::string text = std::to_string(rows->row.size()) + " of a row";
  if (rows->condition) text += ", " + std::to_string(rows->under.size()) + " if it is written";
  return text + ", " + std::to_string(rows->element.size()) + " of an element, " +
         (rows->adds() ? "added" : "stored");
}

ir::Stmt last_elements(const ir::Body& body) {
  ir::Stmt last;
  ir::for_each_stmt(body, [&](const ir::Stmt& s) {
    const auto* loop = ir::as<ir::For>(s);
    if (loop && loop->kind == ir::LoopKind::parallel) last = s;
  });
  return last;
}

class Rows : public ::testing::TestWithParam<RowCase> {};

TEST_P(Rows, AreFoundOnceAndWrittenInPieces) {
  const RowCase& c = GetParam();
  const testing::Lowered lowered(kernel("rows", [&] {
    Tensor x = input("x", {256, 64}, bf16), list = input("list", {64}, i32),
           out = inout("out", {1000, c.columns > 0 ? c.columns : c.n}, c.type);
    grid(1, {.threads = c.threads}, [&](Index) {
      Shared a({64, 64}, bf16), b({c.n, 64}, bf16);
      copy(x.at(0, 0), a);
      copy(x.at(0, 0), b);
      serial(4, [&](Index) {
        Fragment sum({64, c.n}, f32, 0);
        gemm(a, b.T(), sum);
        c.write(out, list, sum);
      });
    });
  }));
  const Layouts layouts = infer_layouts(lowered.body(), c.threads, lowered.target);
  const ir::Stmt last = last_elements(lowered.body());
  EXPECT_EQ(words(row_loop(*ir::as<ir::For>(last))), c.rows);
  const auto plan = plan_row_store(last, layouts, c.threads, lowered.target);
  ASSERT_EQ(plan.has_value(), c.slow && *c.slow == 0);
  if (plan) return;
  EXPECT_EQ(plan.reason().why.empty(), c.slow == nullptr) << plan.reason().why;
  if (c.slow) {
    EXPECT_NE(plan.reason().why.find(c.slow), std::string::npos) << plan.reason().why;
  }
}

void to_rows(const Tensor& out, const Tensor&, const Fragment& sum) { copy(sum, out.at(0, 0)); }

void listed(const Tensor& out, const Tensor& list, const Fragment& sum) {
  parallel(sum, [&](Index i, Index j) { out(list(i), j) = sum(i, j); });
}

void added(const Tensor& out, const Tensor& list, const Fragment& sum) {
  parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), j), sum(i, j)); });
}

const RowCase row_cases[] = {
    {"copied", "0 of a row, 1 of an element, stored", "", 64, bf16, to_rows},
    {"copied_f16", "0 of a row, 1 of an element, stored", "", 32, f16, to_rows},
    {"copied_f32", "0 of a row, 1 of an element, stored", nullptr, 48, f32, to_rows},
    {"copied_24_columns", "0 of a row, 1 of an element, stored", nullptr, 24, bf16, to_rows},
    {"copied_by_two_groups", "0 of a row, 1 of an element, stored", "", 128, bf16, to_rows, 256},
    {"copied_96_columns_by_two", "0 of a row, 1 of an element, stored", nullptr, 96, bf16, to_rows, 256},
    {"listed", "1 of a row, 1 of an element, stored", "", 64, bf16, listed},
    {"listed_by_two_groups", "1 of a row, 1 of an element, stored", "", 128, f16, listed, 256},
    {"listed_f32", "1 of a row, 1 of an element, stored", "", 48, f32, listed},
    {"listed_in_wider_rows", "1 of a row, 1 of an element, stored", "", 64, bf16, listed, 128, 200},
    {"listed_24_columns", "1 of a row, 1 of an element, stored", "24 columns", 24, bf16, listed},
    {"listed_96_columns_by_two", "1 of a row, 1 of an element, stored", "48 columns", 96, bf16, listed, 256},
    {"listed_odd_rows", "1 of a row, 1 of an element, stored", "rows of `out` are not known", 64, bf16,
     listed, 128, 99},
    {"listed_shorter_rows", "1 of a row, 1 of an element, stored", "", 64, bf16, listed, 128, 56},
    {"added_from_a_place_of_the_block_on", "1 of a row, 1 of an element, added", "", 64, f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       Expr first = list(0) * 4;
       parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), first + j), sum(i, j)); });
     },
     128, 100},
    {"added_from_an_odd_place_on", "1 of a row, 1 of an element, added", "rows of `out` are not known", 64,
     f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       Expr first = list(0) * 2;
       parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), first + j), sum(i, j)); });
     },
     128, 100},
    {"added_from_a_place_of_the_row_on", "1 of a row, 1 of an element, added", "rows of `out` are not known",
     64, f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), i * 4 + j), sum(i, j)); });
     },
     128, 100},
    {"limited_again", "0 of a row, 1 if it is written, 1 of an element, added", "", 64, f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       Expr first = list(0) * 4;
       parallel(sum, [&](Index i, Index j) {
         when(i < 50 && first + j < 100, [&] { atomic_add(out(list(i), first + j), sum(i, j)); });
       });
     },
     128, 100},
    {"limited_elsewhere", "", nullptr, 64, f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       Expr first = list(0) * 4;
       parallel(sum, [&](Index i, Index j) {
         when(i < 50 && first + j < 99, [&] { atomic_add(out(list(i), first + j), sum(i, j)); });
       });
     },
     128, 100},
    {"listed_e4m3", "1 of a row, 1 of an element, stored", "rows of e4m3", 64, e4m3, listed},
    {"added", "1 of a row, 1 of an element, added", "", 64, f32, added},
    {"added_from_a_column_on", "1 of a row, 1 of an element, added", "", 64, f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), j + 32), sum(i, j)); });
     },
     128, 96},
    {"added_from_an_odd_column_on", "1 of a row, 1 of an element, added", "rows of `out` are not known", 64,
     f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), j + 2), sum(i, j)); });
     },
     128, 96},
    {"added_unrounded", "1 of a row, 1 of an element, added", "unrounded", 64, bf16, added},
    {"added_rounded", "1 of a row, 1 of an element, added", "", 64, bf16,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) { atomic_add(out(list(i), j), bf16(sum(i, j))); });
     }},
    {"limited", "0 of a row, 0 if it is written, 1 of an element, stored", "", 64, bf16,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       Expr end = list(0);
       parallel(sum, [&](Index i, Index j) { when(i < end, [&] { out(i, j) = sum(i, j); }); });
     }},
    {"listed_if_there", "1 of a row, 0 if it is written, 1 of an element, stored", "", 64, bf16,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) {
         Expr row = list(i);
         when(row >= 0, [&] { out(row, j) = sum(i, j); });
       });
     }},
    {"weighted", "0 of a row, 2 if it is written, 1 of an element, added", "", 64, f32,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) {
         when(i < 50, [&] { atomic_add(out(list(i), j), sum(i, j) * f32(list(i + 1))); });
       });
     }},
    {"listed_columns", "", nullptr, 64, bf16,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) { out(i, list(j)) = sum(i, j); });
     }},
    {"elements_of_tensors", "", nullptr, 64, bf16,
     [](const Tensor& out, const Tensor& list, const Fragment& sum) {
       parallel(sum, [&](Index i, Index j) { out(list(i), j) = sum(i, j) + f32(list(j)); });
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, Rows, ::testing::ValuesIn(row_cases),
                         [](auto& info) { return std::string(info.param.name); });

TEST(RowLoop, KeepsWhatElementsRead) {
  const testing::Lowered lowered(kernel("limits", [] {
    Tensor out = output("out", {64, 32}, f32), first = input("first", {64}, i32),
           end = input("end", {64}, i32), factor = input("factor", {64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment own({64, 32}, f32, 1);
      parallel(own, [&](Index i, Index j) {
        when(i >= first(i) && i < end(i), [&] { out(i, j) = own(i, j) * factor(i); });
      });
    });
  }));
  const auto rows = row_loop(*ir::as<ir::For>(last_elements(lowered.body())));
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->row.size(), 2u);  // the limits, which decide whether the row is written
  EXPECT_EQ(rows->found().size(), 1u);
}

// Where a loop puts the columns of a sum, as a number that it computes.
struct PlaceCase {
  const char* name;
  bool is_planned, in_own_order;
  Expr (*place)(const Index& column);
  int n = 64, threads = 128;
  DType type = bf16;
};

void PrintTo(const PlaceCase& c, std::ostream* out) { *out << c.name; }

class Places : public ::testing::TestWithParam<PlaceCase> {};

TEST_P(Places, OfColumnsAreThoseOfThreadsOrInOrder) {
  const PlaceCase& c = GetParam();
  const testing::Lowered lowered(kernel("places", [&] {
    Tensor x = input("x", {256, 64}, bf16), out = output("out", {1000, c.n}, c.type);
    grid(1, {.threads = c.threads}, [&](Index) {
      Shared a({64, 64}, bf16), b({c.n, 64}, bf16);
      copy(x.at(0, 0), a);
      copy(x.at(0, 0), b);
      Fragment sum({64, c.n}, f32, 0);
      gemm(a, b.T(), sum);
      parallel(sum, [&](Index i, Index j) { out(i * 3, c.place(j)) = sum(i, j); });
    });
  }));
  const Layouts layouts = infer_layouts(lowered.body(), c.threads, lowered.target);
  const ir::Stmt last = last_elements(lowered.body());
  const auto plan = plan_row_store(last, layouts, c.threads, lowered.target);
  ASSERT_EQ(plan.has_value(), c.is_planned);
  if (!plan) return;
  EXPECT_EQ(plan->in_own_order, c.in_own_order);
}

// Two of every eight columns are a thread's, so that bits 1 and 2 of a column's number change places with 3
// and 4.
Expr by_remainders(const Index& j) { return j / 32 * 32 + j % 8 / 2 * 8 + j % 32 / 8 * 2 + j % 2; }
Expr by_differences(const Index& j) {
  Expr pair = j / 2 % 4, block = j / 8 % 4;
  return j + (pair - block) * 6;
}

INSTANTIATE_TEST_SUITE_P(
    Table, Places,
    ::testing::Values(PlaceCase{"in_order", true, false, [](const Index& j) -> Expr { return j + 0; }},
                      PlaceCase{"by_remainders", true, true, by_remainders},
                      PlaceCase{"by_differences", true, true, by_differences},
                      PlaceCase{"by_two_groups", true, true, by_remainders, 128, 256},
                      PlaceCase{"half_a_quad_of_a_group", false, false, by_remainders, 96, 256},
                      PlaceCase{"of_f32", false, false, by_remainders, 64, 128, f32},
                      PlaceCase{"backwards", false, false, [](const Index& j) -> Expr { return 63 - j; }},
                      PlaceCase{"other_blocks", false, false,
                                [](const Index& j) -> Expr { return j / 2 % 4 * 16 + j / 8 * 2 + j % 2; }}),
    [](auto& info) { return std::string(info.param.name); });

}  // namespace plan_row_stores_test
}  // namespace tegula::passes
