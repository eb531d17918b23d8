// How fragments of 16-bit floats are held: in words of two, as computed, or rounded.
#include "passes/cuda/rows_beside_sums.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace fragment_forms_test {

using namespace lang;

struct FormCase {
  const char* name;
  bool packed, unrounded;
  void (*use)(Fragment& p, const Shared& x, Fragment& sum, const Tensor& out);
};

void PrintTo(const FormCase& c, std::ostream* out) { *out << c.name; }

class FormsOfFragments : public ::testing::TestWithParam<FormCase> {};

TEST_P(FormsOfFragments, FollowTheirReaders) {
  const FormCase& c = GetParam();
  const testing::Lowered lowered(kernel("forms", [&] {
    Tensor in = input("in", {64, 64}, bf16), out = output("out", {64, 64}, bf16);
    grid(1, {.threads = 128}, [&](Index) {
      Shared x({64, 64}, bf16);
      copy(in.at(0, 0), x);
      Fragment s({64, 64}, f32, 0), p({64, 64}, bf16), sum({64, 64}, f32, 0);
      gemm(x, x.T(), s);
      copy(s, p);
      c.use(p, x, sum, out);
      copy(sum, out.at(0, 0));
    });
  }));
  int packed = 0, unrounded = 0;
  const FragmentForms& forms = lowered.plan.grids[0].forms;
  ir::for_each_stmt(lowered.body(), [&](const ir::Stmt& s) {
    const auto* n = ir::as<ir::Declare>(s);
    packed += n && forms.packed.contains(n->tile.get());
    unrounded += n && forms.unrounded.contains(n->tile.get());
  });
  EXPECT_EQ(packed, c.packed ? 1 : 0);
  EXPECT_EQ(unrounded, c.unrounded ? 1 : 0);
}

const FormCase form_cases[] = {
    {"of_a_product", true, false,
     [](Fragment& p, const Shared& x, Fragment& sum, const Tensor&) { gemm(p, x, sum); }},
    {"only_read", true, false,
     [](Fragment& p, const Shared&, Fragment& sum, const Tensor&) {
       parallel(sum, [&](Index i, Index j) { sum(i, j) += p(i, j) * p(i, j); });
     }},
    {"made_of_others_and_stored_as_it_is", false, true,
     [](Fragment& p, const Shared&, Fragment& sum, const Tensor& out) {
       parallel(p, [&](Index i, Index j) { p(i, j) = sum(i, j) * 2; });
       copy(p, out.at(0, 0));
     }},
    {"changed", false, false,
     [](Fragment& p, const Shared& x, Fragment& sum, const Tensor&) {
       parallel(p, [&](Index i, Index j) { p(i, j) = p(i, j) * 2; });
       gemm(p, x, sum);
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, FormsOfFragments, ::testing::ValuesIn(form_cases),
                         [](auto& info) { return std::string(info.param.name); });

// A tile that a product reads, to fragments of one, two and three dimensions; one of them is the whole,
// transposed.
TEST(MatrixLoads, AreOfWholeTransposedTiles) {
  const testing::Lowered lowered(kernel("loads", [&] {
    Tensor in = input("in", {64, 64}, bf16), out = output("out", {64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared x({64, 64}, bf16);
      copy(in.at(0, 0), x);
      Fragment sum({64, 64}, f32, 0), across({64, 64}, bf16), column({64}, bf16), cells({1, 16, 4}, bf16);
      gemm(x, x.T(), sum);
      parallel(across, [&](Index i, Index j) { across(i, j) = x(j, i); });
      parallel(column, [&](Index i) { column(i) = x(i, 0); });
      parallel(cells, [&](Index i, Index j, Index k) { cells(i, j, k) = x(j, k); });
      parallel(sum,
               [&](Index i, Index j) { sum(i, j) += across(i, j) + column(i) + cells(0, i / 4, i % 4); });
      copy(reduce_sum(sum), out);
    });
  }));
  const GridPlan& own = lowered.plan.grids[0];
  const Buffers operands = operands_of(lowered.body());
  int loads = 0;
  ir::for_each_stmt(lowered.body(), [&](const ir::Stmt& s) {
    loads += matrix_load(s, {128, own.layouts, operands, lowered.target}).has_value();
  });
  EXPECT_EQ(loads, 1);
}

struct StagingCase {
  const char* name;
  bool staging;
  DType type;
  void (*fill)(const Fragment& sum, Shared& tile);
  void (*store)(const Shared& tile, const Tensor& out);
};

void PrintTo(const StagingCase& c, std::ostream* out) { *out << c.name; }

class StagingTiles : public ::testing::TestWithParam<StagingCase> {};

// Tiles of sums of a warp group, from which threads store rows.
TEST_P(StagingTiles, AreFilledWholeAndReadAlongRows) {
  const StagingCase& c = GetParam();
  const testing::Lowered lowered(kernel("staging", [&] {
    Tensor in = input("in", {64, 64}, bf16), out = output("out", {64, 64}, c.type);
    grid(1, {.threads = 128}, [&](Index) {
      Shared x({64, 64}, bf16), tile({64, 64}, c.type);
      copy(in.at(0, 0), x);
      Fragment sum({64, 64}, f32, 0);
      gemm(x, x.T(), sum);
      c.fill(sum, tile);
      c.store(tile, out);
    });
  }));
  const GridPlan& own = lowered.plan.grids[0];
  const Buffers operands = operands_of(lowered.body());
  EXPECT_EQ(staging_tiles(lowered.body(), {128, own.layouts, operands, lowered.target}).size(),
            c.staging ? 1u : 0u);
}

void fill_whole(const Fragment& sum, Shared& tile) { copy(sum, tile); }
void fill_by_elements(const Fragment& sum, Shared& tile) {
  parallel(sum, [&](Index i, Index j) { tile(i, j) = sum(i, j); });
}
void fill_by_words(const Fragment& sum, Shared& tile) { copy(sum.to(tile.type()), tile); }
void fill_scaled(const Fragment& sum, Shared& tile) {
  parallel(sum, [&](Index i, Index j) { tile(i, j) = sum(i, j) * 2; });
}
void store_whole(const Shared& tile, const Tensor& out) { copy(tile, out.at(0, 0)); }
void store_rows_in_another_order(const Shared& tile, const Tensor& out) {
  parallel(64, 64, [&](Index i, Index j) { out(i, j) = tile(63 - i, j); });
}
void store_elements_in_another_order(const Shared& tile, const Tensor& out) {
  parallel(64, 64, [&](Index i, Index j) { out(i, j) = tile(i, 63 - j); });
}

INSTANTIATE_TEST_SUITE_P(
    Table, StagingTiles,
    ::testing::Values(
        StagingCase{"whole", true, bf16, fill_whole, store_whole},
        StagingCase{"by_elements", true, f16, fill_by_elements, store_whole},
        StagingCase{"by_words", true, bf16, fill_by_words, store_whole},
        StagingCase{"rows_in_another_order", true, bf16, fill_whole, store_rows_in_another_order},
        StagingCase{"elements_in_another_order", false, bf16, fill_whole, store_elements_in_another_order},
        StagingCase{"of_four_bytes", false, f32, fill_whole, store_whole},
        StagingCase{"of_computed_elements", false, bf16, fill_scaled, store_whole}),
    [](auto& info) { return std::string(info.param.name); });

// Of which loops over a fragment take columns, or rows that they compute from their own.
TEST(TurnedTiles, AreReadInAnotherOrderThanTheLoop) {
  const testing::Lowered lowered(kernel("turned", [&] {
    Tensor in = input("in", {64, 64}, bf16), out = output("out", {128, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared other_rows({64, 64}, bf16), one_row({64, 64}, bf16), columns({64, 128}, bf16),
          wide({64, 64}, f32);
      for (Shared* tile : {&other_rows, &one_row, &wide}) copy(in.at(0, 0), *tile);
      parallel(columns, [&](Index i, Index j) { columns(i, j) = in(i, j % 64); });
      Fragment sum({128, 64}, f32, 0);
      parallel(sum, [&](Index i, Index j) {
        sum(i, j) += other_rows(i % 64, j) + one_row(0, j) + columns(j, i) + wide(i % 64, j);
      });
      copy(sum, out.at(0, 0));
    });
  }));
  EXPECT_EQ(turned_tiles(lowered.body()).size(), 2u);
}

// Along rows of 128 bytes and more of 16-bit floats, beside a sum or what is used with one.
TEST(TilesBesideSums, AreReadWhereLanesHoldEightRows) {
  const testing::Lowered lowered(kernel("beside", [&] {
    Tensor in = input("in", {64, 128}, bf16), out = output("out", {3, 64, 128}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared x({64, 64}, bf16), beside({64, 128}, bf16), of_fragment({64, 128}, bf16);
      Shared short_rows({64, 32}, bf16), wide({64, 128}, f32), alone({64, 128}, bf16);
      for (Shared* tile : {&x, &beside, &of_fragment, &short_rows, &wide, &alone}) copy(in.at(0, 0), *tile);
      Fragment sum({64, 128}, f32, 0), half({64, 32}, f32, 0), values({64, 128}, bf16);
      gemm(x, beside, sum);
      gemm(x.slice(all, range(0, 32)), x.slice(range(0, 32), range(0, 32)), half);
      copy(of_fragment, values);
      parallel(sum, [&](Index i, Index j) { sum(i, j) += values(i, j) + beside(i, j) + wide(i, j); });
      parallel(half, [&](Index i, Index j) { half(i, j) += short_rows(i, j); });
      Fragment other = load(alone, {64, 128}, f32);
      copy(sum, out.slice(0)), copy(half, out.slice(1)), copy(other, out.slice(2));
    });
  }));
  EXPECT_EQ(tiles_beside_sums(lowered.body()).size(), 2u);
}

// Words of several elements, where rows of 128 bytes begin in the same bank; not whole words, nor short rows.
TEST(TurnedTiles, HaveWordsOfSeveralElementsInLongRows) {
  const testing::Lowered lowered(kernel("words", [&] {
    Tensor in = input("in", {64, 64}, u32), out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared words({64, 32}, u32), short_rows({64, 16}, u32), whole({64, 64}, u32);
      for (Shared* tile : {&words, &short_rows, &whole}) copy(in.at(0, 0), *tile);
      Fragment sum({64, 64}, f32, 0);
      parallel(sum, [&](Index i, Index j) {
        Expr bits =
            (words(i, j / 2) >> u32(j % 2 * 16)) + (short_rows(i, j / 4) >> u32(j % 4 * 8)) + whole(i, j);
        sum(i, j) += f32(i32(bits & 255u));
      });
      copy(sum, out.at(0, 0));
    });
  }));
  EXPECT_EQ(turned_tiles(lowered.body()).size(), 1u);
}

}  // namespace fragment_forms_test
}  // namespace tegula::passes
