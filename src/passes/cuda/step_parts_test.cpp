// What the parts of small steps await and let go.
#include "passes/cuda/step_parts.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace step_parts_test {

using namespace lang;

// Tiles of a step and what outlives it.
struct Step {
  Index j;
  Shared &query, &a, &b;
  Fragment &o, &o2;

  Fragment scores() const {
    Fragment s({64, 64}, f32, 0);
    gemm(query, a.T(), s);
    return s;
  }
};

void double_all(Fragment& f) {
  parallel(f, [&](Index i, Index c) { f(i, c) *= 2; });
}

Kernel program(void (*work)(const Step& step), int stages) {
  return kernel("steps", [&] {
    Dim N("N");
    Tensor q = input("q", {64, 64}, bf16), x = input("x", {N, 64}, bf16), y = input("y", {N, 64}, bf16),
           out = output("out", {64, 64}, f32), out2 = output("out2", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared query({64, 64}, bf16);
      copy(q.at(0, 0), query);
      Fragment o({64, 64}, f32, 0), o2({64, 64}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = stages}, [&](Index j) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(x.at(j * 64), a);
        copy(y.at(j * 64), b);
        work({j, query, a, b, o, o2});
      });
      copy(o, out.at(0, 0));
      copy(o2, out2.at(0, 0));
    });
  });
}

struct PartsCase {
  const char* name;
  int stages;
  void (*work)(const Step& step);
  const char* parts;  // of the loop and what stands around it, without declarations
};

void PrintTo(const PartsCase& c, std::ostream* out) { *out << c.name; }

class Parts : public ::testing::TestWithParam<PartsCase> {};

std::string without_declarations(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool plain = line.find("declare") != std::string::npos || line.rfind("fill", 0) == 0 ||
                       line.rfind("store", 0) == 0 || line.rfind("copy", 0) == 0;
    if (!plain) result += line + "\n";
  }
  return result;
}

TEST_P(Parts, AreThese) {
  const testing::Lowered lowered(program(GetParam().work, GetParam().stages));
  const GridPlan& plan = lowered.plan.grids.front();
  ASSERT_TRUE(plan.roles) << plan.no_roles.why;
  EXPECT_EQ(without_declarations(print(plan.steps, *plan.roles)), GetParam().parts + 1);
}

const PartsCase parts_cases[] = {
    {"one_product", 2, [](const Step& t) { gemm(t.a, t.b, t.o); }, R"(
if 0 < ceildiv(N, 64)
  loop i0
    await tiles s1; gemm to f0; await all but 1 products; let go s1 of the step before
  await all but 0 products; let go s1 of the step before
)"},
    {"one_product_with_one_slot", 1, [](const Step& t) { gemm(t.a, t.b, t.o); }, R"(
loop i0
  await tiles s1; gemm to f0
  await all but 0 products; let go s1
)"},
    {"two_sums", 2,
     [](const Step& t) {
       gemm(t.a, t.b, t.o);
       gemm(t.query, t.b, t.o2);
     },
     R"(
await tiles s0
if 0 < ceildiv(N, 64)
  loop i0
    await tiles s1 s2; gemm to f0
    gemm to f1; await all but 2 products; let go s1 s2 of the step before
  await all but 0 products; let go s1 of the step before, s2 of the step before
let go s0
)"},
    {"work_on_the_first_of_two_sums", 2,
     [](const Step& t) {
       gemm(t.a, t.b, t.o);
       gemm(t.a, t.b.T(), t.o2);
       double_all(t.o);
     },
     R"(
loop i0
  await tiles s1; gemm to f0
  gemm to f1
  await all but 1 products; elementwise mul to f0
  await all but 0 products; let go s1
)"},
    {"weights", 2,
     [](const Step& t) {
       Fragment s = t.scores();
       double_all(s);
       gemm(s.to(bf16), t.b, t.o);
     },
     R"(
await tiles s0
if 0 < ceildiv(N, 64)
  await tiles s1; gemm to f2
  await all but 0 products; let go s1; elementwise mul to f2
  copy to f3
  loop i0
    await tiles s1; gemm to f2
    await tiles s2; gemm to f0
    await all but 1 products; let go s1; elementwise mul to f2
    await all but 0 products; let go s2; copy to f3
let go s0
if 0 < ceildiv(N, 64)
  await tiles s2; gemm to f0
  await all but 0 products; let go s2
)"},
    {"product_of_single_warps_in_a_branch", 2,
     [](const Step& t) {
       gemm(t.a, t.b, t.o);
       when(t.j > 0, [&] {
         Fragment few({16, 24}, f32, 0);
         gemm(t.query.slice(range(0, 16)), t.query.slice(all, range(0, 24)), few);
         parallel(t.o2, [&](Index i, Index c) { t.o2(i, c) += few(i % 16, c % 24); });
       });
     },
     R"(
await tiles s0
loop i0
  await tiles s1; gemm to f0
  await all but 0 products; let go s1; if i0 > 0
let go s0
)"},
    {"elements_of_a_tile", 2,
     [](const Step& t) {
       Fragment s = t.scores();
       parallel(s, [&](Index i, Index c) { t.o(i, c) += s(i, c) * f32(t.b(i, c)); });
     },
     R"(
await tiles s0
if 0 < ceildiv(N, 64)
  await tiles s1; gemm to f2
  await all but 0 products; let go s1
  loop i0
    await tiles s1; gemm to f2_next
    await tiles s2, all but 1 products; elementwise add to f0; let go s2
    await tiles s1; gemm to f2
    await tiles s2, all but 1 products; let go s1 of the step before; elementwise add to f0; let go s2
    await all but 0 products; let go s1
  if floormod(ceildiv(N, 64) - 0 - 1, 2) == 1
    await tiles s1; gemm to f2_next
    await all but 0 products; let go s1
  await tiles s2; elementwise add to f0; let go s2
  if floormod(ceildiv(N, 64) - 0 - 1, 2) == 1
    await tiles s2; elementwise add to f0; let go s2
let go s0
)"},
    {"one_tile_for_both_in_three_slots", 3,
     [](const Step& t) {
       Fragment s = t.scores();
       double_all(s);
       gemm(s.to(bf16), t.a, t.o);
     },
     R"(
await tiles s0
if 0 < ceildiv(N, 64)
  await tiles s1; gemm to f2
  await all but 0 products; elementwise mul to f2
  copy to f3
  loop i0
    await tiles s1; gemm to f2
    gemm to f0
    await all but 1 products; elementwise mul to f2
    await all but 0 products; let go s1 of the step before; copy to f3
let go s0
if 0 < ceildiv(N, 64)
  gemm to f0
  await all but 0 products; let go s1 of the step before
)"},
    {"one_tile_for_both", 2,
     [](const Step& t) {
       Fragment s = t.scores();
       double_all(s);
       gemm(s.to(bf16), t.a, t.o);
     },
     R"(
await tiles s0
loop i0
  await tiles s1; gemm to f2
  await all but 0 products; elementwise mul to f2
  copy to f3, sixteenths 0 to 4
  gemm to f0, sixteenths 0 to 4
  copy to f3, sixteenths 4 to 8
  gemm to f0, sixteenths 4 to 8
  copy to f3, sixteenths 8 to 12
  gemm to f0, sixteenths 8 to 12
  copy to f3, sixteenths 12 to 16
  gemm to f0, sixteenths 12 to 16
  await all but 0 products; let go s1
let go s0
)"},
};

INSTANTIATE_TEST_SUITE_P(Table, Parts, ::testing::ValuesIn(parts_cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace step_parts_test
}  // namespace tegula::passes
