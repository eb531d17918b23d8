// Products of e4m3 with scales of rows of A and of blocks of B in every 128 of the inner dimension.
#include <functional>

#include "tests/variants/variants.hpp"

namespace variants::scaled_product_variants {
namespace {

using namespace tegula::lang;

constexpr int m = 128, n = 128, group = 128;

struct Inputs {
  Dim M{"M"}, N{"N"}, K{"K"};
  Tensor A = input("A", {M, K}, e4m3), sa = input("sa", {ceildiv(K, group), M}, f32);
  Tensor B = input("B", {N, K}, e4m3), sb = input("sb", {ceildiv(N, group), ceildiv(K, group)}, f32);
  Tensor C = output("C", {M, N}, bf16);
};
struct Step {
  const Inputs& in;
  const Index &g, &x, &y;
  Fragment& sum;

  Shared tile(const Tensor& from, const Expr& row) const {
    Shared result({m, group}, e4m3);
    copy(from.at(row, g * group), result);
    return result;
  }
  Shared scales() const {
    Shared result({m}, f32);
    copy(in.sa.slice(g).at(y * m), result);
    return result;
  }
};
using Way = std::function<void(const Step&)>;

Kernel product(const Way& way) {
  return kernel("scaled", [&] {
    Inputs in;
    grid(ceildiv(in.N, n), ceildiv(in.M, m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment sum({m, n}, f32, 0);
      pipelined(ceildiv(in.K, group), {.stages = 4}, [&](Index g) { way({in, g, x, y, sum}); });
      copy(sum, in.C.at(y * m, x * n));
    });
  });
}

void multiply(const Shared& a, const Shared& b, Fragment& partial) {
  gemm(a, b.T(), partial, {.accumulate = Accumulate::tensor_core});
}

void in_one_expression(const Step& t) {
  Shared a = t.tile(t.in.A, t.y * m), b = t.tile(t.in.B, t.x * n), scale = t.scales();
  Fragment partial({m, n}, f32, 0);
  multiply(a, b, partial);
  parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) += partial(i, j) * (scale(i) * t.in.sb(t.x, t.g)); });
}
void with_names(const Step& t) {
  Shared scale = t.scales(), b = t.tile(t.in.B, t.x * n), a = t.tile(t.in.A, t.y * m);
  Expr of_b = t.in.sb(t.x * n / group, t.g);
  Fragment partial({m, n}, f32);
  clear(partial);
  multiply(a, b, partial);
  parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) = t.sum(i, j) + partial(i, j) * (of_b * scale(i)); });
}
void factors_in_registers(const Step& t) {
  Shared a = t.tile(t.in.A, t.y * m), b = t.tile(t.in.B, t.x * n), scale = t.scales();
  Fragment factor({m}, f32), partial({m, n}, f32, 0);
  parallel(factor, [&](Index i) { factor(i) = scale(i) * t.in.sb(t.x, t.g); });
  multiply(a, b, partial);
  parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) += partial(i, j) * factor(i); });
}
void scaled_and_added(const Step& t) {
  Shared a = t.tile(t.in.A, t.y * m), b = t.tile(t.in.B, t.x * n), scale = t.scales();
  Fragment partial({m, n}, f32, 0);
  multiply(a, b, partial);
  parallel(partial, [&](Index i, Index j) { partial(i, j) *= scale(i) * t.in.sb(t.x, t.g); });
  parallel(t.sum, [&](Index i, Index j) { t.sum(i, j) += partial(i, j); });
}
void scaled_twice(const Step& t) {
  Shared a = t.tile(t.in.A, t.y * m), b = t.tile(t.in.B, t.x * n), scale = t.scales();
  Fragment partial({m, n}, f32, 0);
  multiply(a, b, partial);
  parallel(partial, [&](Index i, Index j) { partial(i, j) *= scale(i); });
  parallel(partial, [&](Index i, Index j) { t.sum(i, j) += partial(i, j) * t.in.sb(t.x, t.g); });
}

TEST(ScaledProductInSeveralWays, IsPlannedAlike) {
  expect_planned_alike({{"in one expression", product(in_one_expression)},
                        {"with names", product(with_names)},
                        {"factors in registers", product(factors_in_registers)},
                        {"scaled and added", product(scaled_and_added)},
                        {"scaled twice", product(scaled_twice)}});
}

}  // namespace
}  // namespace variants::scaled_product_variants
