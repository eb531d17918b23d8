// Which parts of steps are dealt to warp groups, what their program becomes, and that its schedule needs all
// it has.
#include "passes/cuda/deal_parts.hpp"

#include <gtest/gtest.h>

#include <set>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace deal_parts_test {

using namespace lang;

struct Part {
  Index number;
  Shared &a, &b;
  Fragment& sum;
};
using Work = void (*)(const Part& part);

// The left operand, 64 columns of a tile, by registers.
void multiply(const Part& t, Fragment& sum) {
  Fragment weights({64, 64}, f32);
  parallel(weights, [&](Index i, Index j) { weights(i, j) = f32(t.a(i, t.number * 64 + j)) * 2; });
  gemm(weights.to(bf16), t.b.reshape({16, 4, 64}).slice(all, t.number, all).T(), sum);
}

void add_product(const Part& t) { multiply(t, t.sum); }

void add_scaled_product(const Part& t) {
  Fragment partial({64, 16}, f32, 0);
  multiply(t, partial);
  parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) += partial(i, j) * f32(t.number); });
}

struct Shape {
  int threads = 0, parts = 2, blocks = 1;  // of a step, of a processor
  void (*more)(const Part& t) = nullptr;   // behind the parts of a step
};

Kernel parts_of(Work work, const Shape& shape = {}) {
  return kernel("parts", [&] {
    Dim M("M"), N("N"), K("K");
    Tensor x = input("x", {M, K}, bf16), y = input("y", {N, K}, bf16), out = output("out", {M, N}, f32);
    grid(ceildiv(M, 64), ceildiv(N, 16), {.threads = shape.threads, .blocks_per_processor = shape.blocks},
         [&](Index bm, Index bn) {
           Fragment sum({64, 16}, f32, 1);
           pipelined(ceildiv(K, 256), {.stages = 3}, [&](Index step) {
             Shared a({64, 256}, bf16), b({16, 256}, bf16);
             copy(x.at(bm * 64, step * 256), a);
             copy(y.at(bn * 16, step * 256), b);
             unrolled(shape.parts, [&](Index part) { work({part, a, b, sum}); });
             if (shape.more) shape.more({step, a, b, sum});
           });
           parallel(sum, [&](Index i, Index j) { sum(i, j) = max(sum(i, j), 0); });
           copy(sum, out.at(bm * 64, bn * 16));
         });
  });
}

struct PartsCase {
  const char* name;
  bool dealt;
  Work work;
  Shape shape = {};
};

void PrintTo(const PartsCase& c, std::ostream* out) { *out << c.name; }

const PartsCase cases[] = {
    {"products", true, add_product},
    {"products_that_are_scaled", true, add_scaled_product},
    {"a_product_added_to_the_left", true,
     [](const Part& t) {
       Fragment partial({64, 16}, f32, 0);
       multiply(t, partial);
       parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) = partial(i, j) + t.sum(i, j); });
     }},
    {"four_parts", true, add_product, {.parts = 4}},
    {"one_part", false, add_product, {.parts = 1}},
    {"three_parts", false, add_product, {.parts = 3}},
    {"two_blocks_of_a_processor", false, add_product, {.blocks = 2}},
    {"sums_that_are_scaled", false,
     [](const Part& t) {
       add_product(t);
       parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) *= 2; });
     }},
    {"sums_added_to_themselves", false,
     [](const Part& t) {
       add_product(t);
       parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) += t.sum(i, j); });
     }},
    {"sums_that_are_replaced", false,
     [](const Part& t) {
       add_product(t);
       parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) = f32(t.number); });
     }},
    {"work_behind_the_parts",
     false,
     add_product,
     {.more = [](const Part& t) { parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) *= 2; }); }}},
};

class PartsOf : public ::testing::TestWithParam<PartsCase> {};

TEST_P(PartsOf, AreDealtWhereTheyOnlyAddToSums) {
  const testing::Lowered lowered(parts_of(GetParam().work, GetParam().shape));
  const Roles roles = lowered.undealt();
  ASSERT_EQ(roles.consumers, threads_of_group);
  const auto dealt = deal_parts(roles);
  ASSERT_EQ(dealt.has_value(), GetParam().dealt);
  if (!dealt) return;
  EXPECT_EQ(dealt->consumers, GetParam().shape.parts * threads_of_group);
  EXPECT_TRUE(dealt->dealt->of_parts);
  const auto products = testing::all_of<ir::Gemm>(dealt->consumer);
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(plan_gemm(*products[0], threads_of_group, lowered.target).instruction, GemmInstruction::wgmma);
}

INSTANTIATE_TEST_SUITE_P(Table, PartsOf, ::testing::ValuesIn(cases),
                         [](auto& info) { return std::string(info.param.name); });

// What the schedule can do without, of what groups say to each other: nothing.
TEST(DealtParts, AreNotToBeChanged) {
  const testing::Lowered lowered(parts_of(add_scaled_product));
  const auto& roles = lowered.plan.grids[0].roles;
  ASSERT_TRUE(roles && roles->dealt);
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  const auto found = schedule::verify(s, schedule::thorough);
  EXPECT_FALSE(found) << found->message;
  std::multiset<std::string> not_needed;
  for (const schedule::Mutation& m : schedule::mutations(s))
    if (m.name.starts_with("consumer") && m.name.find("barrier") != std::string::npos &&
        !schedule::verify(m.schedule, schedule::thorough))
      not_needed.insert(m.name);
  EXPECT_EQ(not_needed, std::multiset<std::string>{});
}

}  // namespace deal_parts_test
}  // namespace tegula::passes
