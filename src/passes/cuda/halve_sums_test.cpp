// Sums of 256 rows in two halves: for which programs, and what becomes of them.
#include "passes/cuda/halve_sums.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace halve_sums_test {

using namespace lang;

struct Tile {
  int rows = 256, columns = 128, threads = 0;
  DType type = e4m3;
  Accumulate accumulate = Accumulate::tensor_core;
};

// What a step does with its product, and what follows the loop.
using Work = void (*)(Fragment& sum, Fragment& product, const Shared& of_row);
using End = void (*)(Fragment& sum, const Tensor& out);

void scale(Fragment& sum, Fragment& product, const Shared& of_row) {
  parallel(sum, [&](Index i, Index j) { sum(i, j) += product(i, j) * of_row(i); });
}
void store(Fragment& sum, const Tensor& out) { copy(sum, out); }

struct HalveCase {
  const char* name;
  bool halves;
  Tile tile = {};
  Work work = scale;
  End end = store;
};

void PrintTo(const HalveCase& c, std::ostream* out) { *out << c.name; }

Kernel program(const HalveCase& c) {
  return kernel("program", [&] {
    const Tile& t = c.tile;
    Dim K("K"), B("B");
    Tensor x = input("x", {B, t.rows, K}, t.type), y = input("y", {t.columns, K}, t.type),
           s = input("s", {K, t.rows}, f32), out = output("out", {B, t.rows, t.columns}, f32);
    grid(B, {.threads = t.threads}, [&](Index b) {
      Fragment sum({t.rows, t.columns}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index k) {
        Shared p({t.rows, 64}, t.type), q({t.columns, 64}, t.type), of_row({t.rows}, f32);
        copy(x.slice(b).at(0, k * 64), p);
        copy(y.at(0, k * 64), q);
        copy(s.slice(k).at(0), of_row);
        Fragment product({t.rows, t.columns}, f32, 0);
        gemm(p, q.T(), product, {.accumulate = t.accumulate});
        c.work(sum, product, of_row);
      });
      c.end(sum, out.slice(b));
    });
  });
}

class HalveSums : public ::testing::TestWithParam<HalveCase> {};

TEST_P(HalveSums, WhereTwoWarpGroupsHaveRoomForThem) {
  const testing::Lowered lowered(program(GetParam()));
  const ir::Kernel before = plan_before(*lowered.written, lowered.target, "halve_sums").kernel;
  const ir::Body body = halve_sums(before, lowered.target).grids[0].body;
  EXPECT_EQ(testing::all_of<ir::Gemm>(body).size(), GetParam().halves ? 2u : 1u);
  if (!GetParam().halves) return;
  EXPECT_EQ(lowered.grid().hints.threads, 256);
  EXPECT_EQ(lowered.plan.grids[0].consumers.turns.size(), 1u);
}

const HalveCase cases[] = {
    {"scaled", true},
    {"on_256_threads", true, {.threads = 256}},
    {"in_two_statements",
     true,
     {},
     [](Fragment& sum, Fragment& product, const Shared& of_row) {
       parallel(product, [&](Index i, Index j) { product(i, j) *= of_row(i); });
       parallel(sum, [&](Index i, Index j) { sum(i, j) += product(i, j); });
     }},
    {"of_16_bits", true, {.type = bf16}},
    {"with_112_columns", true, {.columns = 112}},
    {"changed_at_the_end",
     true,
     {},
     scale,
     [](Fragment& sum, const Tensor& out) {
       parallel(sum, [&](Index i, Index j) { sum(i, j) = max(sum(i, j), 0) + f32(i); });
       copy(sum, out);
     }},
    {"stored_by_elements",
     true,
     {},
     scale,
     [](Fragment& sum, const Tensor& out) {
       parallel(sum, [&](Index i, Index j) { out(i, j) = sum(i, j); });
     }},
    {"with_fewer_rows", false, {.rows = 128}},
    {"with_fewer_columns", false, {.columns = 64}},
    {"on_512_threads", false, {.threads = 512}},
    {"promoted", false, {.accumulate = Accumulate::promoted}},
    {"of_other_rows",
     false,
     {},
     [](Fragment& sum, Fragment& product, const Shared&) {
       parallel(sum, [&](Index i, Index j) { sum(i, j) += product(255 - i, j); });
     }},
    {"reduced",
     false,
     {},
     scale,
     [](Fragment& sum, const Tensor& out) {
       Fragment total({256}, f32, 0);
       reduce_sum(sum, total, 1);
       parallel(sum, [&](Index i, Index j) { out(i, j) = sum(i, j) / total(i); });
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, HalveSums, ::testing::ValuesIn(cases),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace halve_sums_test
}  // namespace tegula::passes
