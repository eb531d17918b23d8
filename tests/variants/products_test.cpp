// One computation written in several ways has one plan: what is decided depends on what statements touch.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "passes/cuda/cuda_passes.hpp"
#include "tegula/lang.hpp"

namespace products {
namespace {

using namespace tegula;
using namespace tegula::lang;
using passes::LoopShape;

constexpr int rows = 64, dim = 64;

// What a step of a loop over tiles of `keys` and `values` finds.
struct Step {
  const Index& j;
  const Shared& q;
  const lang::Tensor &keys, &values, &factors;
  const Expr& length;
  Fragment& sum;

  Shared tile(const lang::Tensor& from) const {
    Shared result({64, dim}, from.type());
    copy(from.at(j * 64), result);
    return result;
  }
};
using Way = std::function<void(const Step& t)>;

struct Variants {
  const char* name;
  DType type;
  int stages;
  LoopShape shape;
  std::vector<Way> ways;
};

Fragment scores(const Step& t, const Shared& k) {
  Fragment s({rows, 64}, f32, 0);
  gemm(t.q, k.T(), s);
  return s;
}

void weigh(Fragment& s) {
  parallel(s, [&](Index i, Index c) { s(i, c) = exp2(s(i, c)); });
}

const std::vector<Variants> all{
    {"attention",
     bf16,
     2,
     LoopShape::delayed,
     {[](const Step& t) {
        Shared k = t.tile(t.keys), v = t.tile(t.values);
        Fragment s = scores(t, k);
        weigh(s);
        gemm(s.to(bf16), v, t.sum);
      },
      [](const Step& t) {  // the tile of values comes last, the weights are rounded by a loop
        Shared k = t.tile(t.keys);
        Fragment s = scores(t, k), p({rows, 64}, bf16);
        weigh(s);
        parallel(p, [&](Index i, Index c) { p(i, c) = s(i, c); });
        Shared v = t.tile(t.values);
        gemm(p, v, t.sum);
      },
      [](const Step& t) {  // a mask, and weights that are selected
        Shared k = t.tile(t.keys), v = t.tile(t.values);
        Fragment s = scores(t, k), p({rows, 64}, bf16);
        when(t.j * 64 + 64 > t.length, [&] {
          parallel(s, [&](Index i, Index c) { s(i, c) = select(t.j * 64 + c < t.length, s(i, c), -inf); });
        });
        parallel(p, [&](Index i, Index c) { p(i, c) = select(s(i, c) > 0, exp2(s(i, c)), 0); });
        gemm(p, v, t.sum);
      },
      [](const Step& t) {  // masks on both sides
        Shared k = t.tile(t.keys), v = t.tile(t.values);
        Fragment s = scores(t, k);
        when(t.j * 64 + 64 > t.length, [&] { weigh(s); });
        when(t.j * 64 < t.length - 200, [&] { weigh(s); });
        gemm(s.to(bf16), v, t.sum);
      }}},
    {"keys_that_are_values",
     bf16,
     3,
     LoopShape::delayed,
     {[](const Step& t) {
        Shared k = t.tile(t.keys);
        Fragment s = scores(t, k);
        weigh(s);
        gemm(s.to(bf16), k, t.sum);
      },
      [](const Step& t) {  // scores in two halves
        Shared k = t.tile(t.keys), v = t.tile(t.values);
        Fragment s({rows, 64}, f32, 0);
        gemm(t.q, k.T(), s);
        gemm(t.q, v.T(), s);
        weigh(s);
        gemm(s.to(bf16), k, t.sum);
      },
      [](const Step& t) {  // the other half first
        Shared v = t.tile(t.values), k = t.tile(t.keys);
        Fragment s({rows, 64}, f32, 0), p({rows, 64}, bf16);
        gemm(t.q, v.T(), s);
        gemm(t.q, k.T(), s);
        parallel(p, [&](Index i, Index c) { p(i, c) = exp2(s(i, c)); });
        gemm(p, k, t.sum);
      }}},
    {"scaled_product",
     e4m3,
     2,
     LoopShape::twofold,
     {[](const Step& t) {
        Shared a = t.tile(t.keys), b = t.tile(t.values);
        Fragment partial({rows, 64}, f32, 0);
        gemm(a, b.T(), partial, {.accumulate = Accumulate::tensor_core});
        parallel(t.sum, [&](Index i, Index c) { t.sum(i, c) += partial(i, c) * t.factors(t.j); });
      },
      [](const Step& t) {  // the factor first, in two loops
        Expr factor = t.factors(t.j);
        Shared a = t.tile(t.keys), b = t.tile(t.values);
        Fragment partial({rows, 64}, f32, 0);
        gemm(a, b.T(), partial, {.accumulate = Accumulate::tensor_core});
        parallel(partial, [&](Index i, Index c) { partial(i, c) *= factor; });
        parallel(t.sum, [&](Index i, Index c) { t.sum(i, c) = t.sum(i, c) + partial(i, c); });
      },
      [](const Step& t) {  // factors in a tile
        Shared a = t.tile(t.keys), b = t.tile(t.values), factors({64}, f32);
        copy(t.factors.at(t.j), factors);
        Fragment partial({rows, 64}, f32);
        fill(partial, 0);
        gemm(a, b.T(), partial, {.accumulate = Accumulate::tensor_core});
        parallel(t.sum, [&](Index i, Index c) { t.sum(i, c) += partial(i, c) * factors(i); });
      }}},
};

lang::Kernel program(const Variants& c, const Way& way) {
  return kernel("variant", [&] {
    Dim n("n"), steps("steps");
    lang::Tensor q = input("q", {rows, dim}, c.type), keys = input("keys", {n, dim}, c.type),
                 values = input("values", {n, dim}, c.type), factors = input("factors", {steps}, f32),
                 out = output("out", {rows, dim}, f32);
    Expr length = scalar("length", i32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared queries({rows, dim}, c.type);
      copy(q.at(0, 0), queries);
      Fragment sum({rows, dim}, f32, 0);
      pipelined(ceildiv(n, 64), {.stages = c.stages}, [&](Index j) {
        way({j, queries, keys, values, factors, length, sum});
      });
      copy(sum, out.at(0, 0));
      parallel(sum, [&](Index i, Index e) { sum(i, e) = sum(i, e) * f32(length) * factors(0); });
      copy(sum, out.at(0, 0));
    });
  });
}

class ProductPlans : public testing::TestWithParam<Variants> {};

TEST_P(ProductPlans, AreTheSame) {
  for (std::size_t i = 0; i < GetParam().ways.size(); ++i) {
    const passes::CudaPlan plan = passes::plan_for_cuda(*program(GetParam(), GetParam().ways[i]).ir(), {});
    const passes::GridPlan& own = plan.grids[0];
    ASSERT_TRUE(own.roles) << "way " << i << ": " << own.no_roles.why;
    EXPECT_FALSE(own.consumers.shapes.empty()) << "way " << i << "\n" << print(plan);
    for (const auto& [loop, shape] : own.consumers.shapes) EXPECT_EQ(shape, GetParam().shape) << "way " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ProductPlans, testing::ValuesIn(all),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace products
