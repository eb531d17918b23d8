// Which products of a loop's step run under other work, and how the loop is written for it.
#include "passes/cuda/delay_products.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/order_loads.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace delay_products_test {

using namespace lang;

// Work between two products, or around them, of a step with tiles `a`, `b` and the sums `s` and `o`.
struct Step {
  Index j;
  Shared &a, &b;
  Fragment &s, &o;
};
using Work = void (*)(const Step& step);

void weights(const Step& t) {
  parallel(t.s, [&](Index i, Index c) { t.s(i, c) = exp2(t.s(i, c)); });
}

Fragment rounded(const Fragment& s) {
  Fragment p({64, 64}, bf16);
  copy(s, p);
  return p;
}

Kernel program(Work work) {
  return kernel("steps", [&] {
    Dim N("N");
    Tensor q = input("q", {64, 64}, bf16), x = input("x", {N, 64}, bf16), y = input("y", {N, 64}, bf16),
           out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared query({64, 64}, bf16);
      copy(q.at(0, 0), query);
      Fragment o({64, 64}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index j) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(x.at(j * 64), a);
        copy(y.at(j * 64), b);
        Fragment s({64, 64}, f32, 0);
        gemm(query, a.T(), s);
        work({j, a, b, s, o});
      });
      copy(o, out.at(0, 0));
    });
  });
}

struct DelayCase {
  const char* name;
  bool delayed;
  Work work;
};

void PrintTo(const DelayCase& c, std::ostream* out) { *out << c.name; }

class TwoProducts : public ::testing::TestWithParam<DelayCase> {};

TEST_P(TwoProducts, AreDelayedWhereNothingElseNeedsTheTile) {
  const testing::Lowered lowered(program(GetParam().work));
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  const ConsumerProgram shaped = delay_products(*roles, lowered.target);
  EXPECT_EQ(shaped.late.size(), GetParam().delayed ? 1u : 0u);
  int delayed_loops = 0;
  for (const auto& [loop, shape] : shaped.shapes) delayed_loops += shape == LoopShape::delayed;
  EXPECT_EQ(delayed_loops, GetParam().delayed ? 1 : 0);
  if (!GetParam().delayed) return;
  // Both products in front of the loop's first one and after its last one: 1 + (1 + 1) + 1.
  EXPECT_EQ(testing::all_of<ir::Gemm>(shaped.body).size(), 4u);
}

const DelayCase delay_cases[] = {
    {"second_by_weights_of_the_first", true,
     [](const Step& t) {
       weights(t);
       gemm(rounded(t.s), t.b, t.o);
     }},
    {"sums_scaled_in_between", true,
     [](const Step& t) {
       weights(t);
       parallel(t.o, [&](Index i, Index c) { t.o(i, c) *= 2; });
       gemm(rounded(t.s), t.b, t.o);
     }},
    {"one_tile_for_both", false,
     [](const Step& t) {
       parallel(t.s, [&](Index i, Index c) { t.s(i, c) += f32(t.b(i, c)); });
       gemm(rounded(t.s), t.a, t.o);
     }},
    {"tile_that_elements_are_read_from", false,
     [](const Step& t) {
       parallel(t.s, [&](Index i, Index c) { t.s(i, c) += f32(t.b(i, c)); });
       gemm(rounded(t.s), t.b, t.o);
     }},
    {"three_products", false,
     [](const Step& t) {
       gemm(rounded(t.s), t.b, t.o);
       gemm(rounded(t.s), t.a, t.o);
     }},
    {"work_behind_the_second", false,
     [](const Step& t) {
       gemm(rounded(t.s), t.b, t.o);
       parallel(t.o, [&](Index i, Index c) { t.o(i, c) *= 2; });
     }},
};

INSTANTIATE_TEST_SUITE_P(Table, TwoProducts, ::testing::ValuesIn(delay_cases),
                         [](auto& info) { return std::string(info.param.name); });

Kernel one_product(int stages, bool work) {
  return kernel("steps", [&] {
    Dim K("K");
    Tensor x = input("x", {64, K}, bf16), y = input("y", {64, K}, bf16), out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment o({64, 64}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = stages}, [&](Index j) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(x.at(0, j * 64), a);
        copy(y.at(0, j * 64), b);
        gemm(a, b.T(), o);
        if (work) parallel(o, [&](Index i, Index c) { o(i, c) *= 2; });
      });
      copy(o, out.at(0, 0));
    });
  });
}

TEST(OneProduct, IsAwaitedInTheNextStepWhereTwoTilesAreThere) {
  for (const auto& [stages, work, deep] :
       {std::tuple(2, false, true), {4, false, true}, {1, false, false}, {2, true, false}}) {
    const testing::Lowered lowered(one_product(stages, work));
    const auto roles = lowered.roles();
    ASSERT_TRUE(roles);
    const ConsumerProgram shaped = delay_products(*roles, lowered.target);
    int found = 0;
    for (const auto& [loop, shape] : shaped.shapes) found += shape == LoopShape::deep;
    EXPECT_EQ(found, deep ? 1 : 0) << stages << " stages" << (work ? ", work" : "");
  }
}

// The tile of a delayed product is loaded after the first tile of the next step, if that takes several
// loads.
TEST(OrderOfLoads, FollowsTheProducts) {
  for (const bool several : {false, true}) {
    const testing::Lowered lowered(kernel("steps", [&] {
      Dim N("N");
      Tensor q = input("q", {64, 64}, bf16), x = input("x", {N, 64}, bf16), list = input("list", {N}, i32),
             out = output("out", {64, 64}, f32);
      grid(1, {.threads = 128}, [&](Index) {
        Shared query({64, 64}, bf16);
        copy(q.at(0, 0), query);
        Fragment o({64, 64}, f32, 0);
        pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index j) {
          Shared a({64, 64}, bf16), b({64, 64}, bf16);
          const int parts = several ? 2 : 1, rows = 64 / parts;
          for (int part = 0; part < parts; ++part) {
            copy(x.at(list(j * parts + part)), a.slice(range(part * rows, (part + 1) * rows)));
            copy(x.at(list(j * parts + part)), b.slice(range(part * rows, (part + 1) * rows)));
          }
          Fragment s({64, 64}, f32, 0);
          gemm(query, a.T(), s);
          parallel(s, [&](Index i, Index c) { s(i, c) = exp2(s(i, c)); });
          gemm(rounded(s), b, o);
        });
        copy(o, out.at(0, 0));
      });
    }));
    const auto roles = lowered.roles();
    ASSERT_TRUE(roles);
    const ConsumerProgram shaped = delay_products(*roles, lowered.target);
    ASSERT_EQ(shaped.late.size(), 1u);
    const Roles ordered = order_loads(*roles, shaped);
    EXPECT_EQ(ordered.ordered.empty(), !several);
    // The query, and the tiles; `a` of the first step stands in front of the loop, `b` of the last one after
    // it.
    const std::size_t copies = testing::all_of<ir::Copy>(ordered.producer).size();
    EXPECT_EQ(copies, several ? 1 + 2 * 4u : 1 + 2u);
  }
}

}  // namespace delay_products_test
}  // namespace tegula::passes
